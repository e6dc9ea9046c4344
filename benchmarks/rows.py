"""A row of the benchmark: one figure with its target, measured several times."""

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Row:
    """One measured figure."""

    group: str
    """Heading under which it stands, such as ``Inference``."""
    what: str
    """What is measured, against what, at which size."""
    values: Sequence[float]
    """One value for each run."""
    unit: str
    """Such as ``times``, ``s``, ``GB``, ``%``."""
    target: str
    """In words, such as ``at least 20 times``."""
    reached: Callable[[float], bool] | None = None
    """Tells of the median whether the target is reached; None where nothing was promised."""
    note: str = ""
    """Why a target is missed and what the limit is, or what else a reader has to know."""
    skipped: str = ""
    """Why there are no values."""

    @property
    def median(self) -> float:
        """Of the values."""
        return statistics.median(self.values)

    @property
    def spread(self) -> tuple[float, float]:
        """The lowest and the highest value."""
        return min(self.values), max(self.values)
