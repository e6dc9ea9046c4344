"""The rows of CONTROLS, found by what they are."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from deltap import markdown


class Row(NamedTuple):
    """One statistic with its interval."""

    value: float
    low: float
    high: float
    p: float
    n: float

    def __str__(self) -> str:
        if not np.isfinite(self.value):
            return markdown.NOTHING
        return f"{self.value:.1f}" + (f" ({self.low:.1f} … {self.high:.1f})" if np.isfinite(self.low) else "")


class Statistics:
    """The CONTROLS of one series, found by what they are."""

    def __init__(self, frame: pd.DataFrame) -> None:
        self.frame = frame

    def rows(self, control: str, statistic: str | None = None, **columns: Any) -> pd.DataFrame:
        """Return rows; a column that is given as None is empty."""
        chosen = self.frame[self.frame["control"] == control]
        if statistic is not None:
            chosen = chosen[chosen["statistic"] == statistic]
        for name, wanted in columns.items():
            chosen = chosen[chosen[name].isna() if wanted is None else chosen[name] == wanted]
        return chosen

    def mean(self, control: str, statistic: str, **columns: Any) -> Row | None:
        """Return the mean over the deeper half of the layers, or a statistic that has no layer; None without one."""
        found = self.rows(control, statistic, **{"layer": None, "at": None, "group": None, **columns})
        return as_row(found.iloc[0]) if len(found) else None

    @property
    def k_star(self) -> int | None:
        """The reference layer, where the table tells it."""
        found = self.rows("two groups")["layer"].dropna()
        return int(found.iloc[0]) if len(found) else None

    def layers(self, control: str, statistic: str, **columns: Any) -> pd.DataFrame:
        """Return the rows of single layers, in their order."""
        found = self.rows(control, statistic, **{"group": None, **columns})
        return found[found["layer"].notna()].sort_values("layer")


def as_row(row: pd.Series) -> Row:
    """Return a row of CONTROLS as a statistic."""
    return Row(*(float(row[name]) for name in ("value", "ci_low", "ci_high", "p", "n")))


Series = Mapping[str, Statistics]
"""Of each series, by what it is called in a table's head."""
