"""Interventions: what is cut instead of the exact question, or how else, so that its effect has something to be
compared with."""
