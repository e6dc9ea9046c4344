"""Figures of ΔP against layer, drawn from the summary table alone.

``variants`` names a figure's files, ``summary`` reads and selects rows, ``style`` decides how curves look,
``delta_p`` draws, ``save`` writes. Nothing here needs a model, and ``variants`` is cheap to import.
"""
