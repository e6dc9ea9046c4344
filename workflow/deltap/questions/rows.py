"""What every container gives: rows, with the place where each one stands."""

from typing import Any, NamedTuple


class BadRow(Exception):
    """A row that cannot be used, and why. It is left out and counted; only too many of them are an error."""


class Row(NamedTuple):
    """One row of a question file."""

    place: str
    """Where it stands, for messages: ``popqa.tsv:17`` or ``hotpotqa.json, element 17``, counted from 1."""
    value: Any
    """A mapping from column to value, or whatever else stands there; a `BadRow` where nothing can be decoded."""
