"""Rows of CONTROLS, as the controls' modules put them down."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from deltap.controls.compare import Curve, deeper_half
from deltap.tables import CONTROLS


class Rows:
    """The statistics of one series.

    What a row says is in its columns: which control, which statistic, of which group, at which layer; without a layer
    it is the mean over the deeper half of them. Levels and gaps of ΔP are percentage points, shares percent.
    """

    def __init__(self, constants: Mapping[str, str], level: float) -> None:
        """``constants``: model, dataset, extractor, site and position; ``level``: of the intervals."""
        self.constants, self.level = constants, level
        self._rows: list[dict[str, Any]] = []

    def add(self, control: str, statistic: str, value: float | None, **columns: Any) -> None:
        """Add one row; numbers that are NaN are left empty."""
        row: dict[str, Any] = {**self.constants, "control": control, "statistic": statistic, "value": value, **columns}
        for name in ("value", "ci_low", "ci_high", "p"):
            row[name] = _number(row.get(name))
        self._rows.append(row)

    def curve(self, control: str, statistic: str, curve: Curve, **columns: Any) -> None:
        """Add a curve, layer by layer with the interval of each, and its mean over the deeper half."""
        self._points(control, statistic, curve, curve.interval(self.level), None, _layers(curve), columns)
        self.mean(control, statistic, curve, **columns)

    def difference(self, control: str, statistic: str, curve: Curve, **columns: Any) -> None:
        """Add a curve that may be zero, with a band that covers all layers at once and p corrected for their number."""
        self._points(control, statistic, curve, curve.band(self.level), curve.p(), _layers(curve), columns)
        self.mean(control, statistic, curve, tested=True, **columns)

    def mean(self, control: str, statistic: str, curve: Curve, tested: bool = False, **columns: Any) -> None:
        """Add a curve's mean over the deeper half of the layers, with its interval and, where it is tested, p."""
        deep = curve.over(deeper_half(len(curve.n)))
        self.point(control, statistic, deep, tested, **columns)

    def point(self, control: str, statistic: str, point: Curve, tested: bool = False, **columns: Any) -> None:
        """Add a curve of one point."""
        (low,), (high,) = point.interval(self.level)
        ends = {"n": int(point.n[0]), "ci_low": low, "ci_high": high, "p": point.p()[0] if tested else None}
        self.add(control, statistic, point.resampled.estimate[0], **{**ends, **columns})

    def places(
        self, control: str, statistic: str, curve: Curve, places: Sequence[Mapping[str, Any]], **columns: Any
    ) -> None:
        """Add the points of a curve over something else, with the interval of each; ``places``: their columns."""
        self._points(control, statistic, curve, curve.interval(self.level), None, places, columns)

    def _points(
        self,
        control: str,
        statistic: str,
        curve: Curve,
        ends: tuple[np.ndarray, np.ndarray],
        p: np.ndarray | None,
        places: Sequence[Mapping[str, Any]],
        columns: Mapping[str, Any],
    ) -> None:
        points = zip(places, curve.n, curve.resampled.estimate, *ends, strict=True)
        for index, (place, n, value, low, high) in enumerate(points):
            ending = {"n": int(n), "ci_low": low, "ci_high": high, "p": None if p is None else p[index]}
            self.add(control, statistic, value, **{**place, **ending, **columns})

    def table(self) -> pa.Table:
        """Return the rows as a CONTROLS table."""
        return pa.Table.from_pylist(self._rows, CONTROLS)


def _layers(curve: Curve) -> list[dict[str, int]]:
    return [{"layer": layer} for layer in range(len(curve.n))]


def _number(value: float | None) -> float | None:
    """Return a number that a table can hold; NaN, which stands for nothing here, is null."""
    return None if value is None or not np.isfinite(value) else float(value)
