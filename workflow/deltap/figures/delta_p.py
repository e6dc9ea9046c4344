"""The figure of ΔP against layer: one panel per model, one curve per data set and anchor."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import ceil

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from deltap.errors import DeltapError
from deltap.figures.canvas import ordered
from deltap.figures.over_layers import Axis, Curve, draw_over_layers
from deltap.figures.sources import Labels
from deltap.figures.style import (
    ANCHOR_LABELS,
    CONTROL_LABELS,
    DASHES,
    MARKERS,
    THIN,
    Dash,
    colours,
    delta_p_limits,
)
from deltap.settings import ANCHORS, SAME_GROUPS, Anchor, DeltaPFigure, FigureEntry, LayerFigure

TICK_STEP = 20
BESIDE = ", beside"  # behind the name of a curve that accompanies another one
LINES: dict[str, Dash] = {"q_anchored": "-", "a_anchored": "--"}


def draw(summary: pd.DataFrame, entry: DeltaPFigure, labels: Labels, notice: str | None = None) -> Figure:
    """Return the figure of a summary's rows.

    ``summary`` has the columns of `deltap.tables.SUMMARY` and at most one row per model, data set, anchor and
    layer (see `deltap.figures.summary`). ``labels`` gives order and labels of models and data sets; a
    slug that it lacks comes last. A data set's colours follow its place in ``labels``, so it keeps them in a
    figure of fewer data sets. A mean of no sample is a gap in its line; one of a single sample has no band.

    With ``entry.beside`` the rows of that intervention are thin lines beside those of the same groups.

    Raises DeltapError when there is nothing to draw, or two rows claim the same point.
    """
    anchors = entry.anchors or ANCHORS
    rows = curve_rows(summary[summary["anchor"].isin(anchors)], entry)
    low, high = delta_p_limits(rows[["mean", "low", "high"]].to_numpy(float), entry.y_min, entry.y_max)
    ticks = range(TICK_STEP * ceil(low / TICK_STEP), int(high) + 1, TICK_STEP)
    return draw_over_layers(
        rows,
        with_companions(anchor_curves(rows, entry, labels["dataset"], anchors), entry),
        ordered(rows["model"], labels["model"], entry.models),
        Axis("ΔP", (low, high), ticks, zero=0),
        entry,
        len(anchors),
        entry.thin_below,
        notice,
        beside_note(entry),
    )


def curve_rows(summary: pd.DataFrame, entry: LayerFigure) -> pd.DataFrame:
    """Return a summary's rows as `over_layers` takes them, with ``model``, ``anchor`` and ``dataset`` besides.

    Those of the intervention that ``entry`` shows beside its own have a curve of their own, and no band.

    Raises DeltapError where there are none.
    """
    if summary.empty:
        raise DeltapError("the table has no rows to draw")
    rows = summary.rename(columns={"ci_low": "low", "ci_high": "high"})
    rows = rows.astype(dict.fromkeys(["model", "dataset", "anchor"], str))
    rows["panel"] = rows["model"]
    rows["curve"] = "dataset " + rows["dataset"] + ", anchor " + rows["anchor"]
    rows = rows.astype(dict.fromkeys(["n", "mean", "low", "high"], float))
    if isinstance(entry, DeltaPFigure) and entry.beside:
        beside = (rows["intervention"] == entry.beside) & (rows["estimate"] == SAME_GROUPS)
        rows.loc[beside, "curve"] += BESIDE
        rows.loc[beside, ["low", "high"]] = np.nan
    return rows


def with_companions(curves: Sequence[Curve], entry: DeltaPFigure) -> list[Curve]:
    """Return the curves, and before each the thin one of the intervention beside it, where the figure has one."""
    if not entry.beside:
        return list(curves)
    thin = [replace(curve, name=curve.name + BESIDE, label="_beside", width=THIN, aside=True) for curve in curves]
    return [curve for pair in zip(thin, curves, strict=True) for curve in pair]


def beside_note(entry: DeltaPFigure) -> str | None:
    """Return what thin lines without a band are, None where there are none."""
    return f"Thin, without band: {CONTROL_LABELS[entry.beside]}, same groups" if entry.beside else None


def anchor_curves(
    rows: pd.DataFrame, entry: DeltaPFigure, labels: Mapping[str, str], anchors: Sequence[Anchor]
) -> list[Curve]:
    """Return the curves in the legend's order: the anchors of the first data set, of the second, …"""
    curves = []
    for dataset, (name, place, pair) in dataset_styles(rows["dataset"], entry, labels).items():
        for anchor in anchors:
            key = f"dataset {dataset}, anchor {anchor}"
            label = f"{ANCHOR_LABELS[anchor]} ({name})"
            if entry.show_n:
                label += _range(rows.loc[rows["curve"] == key, "n"])
            dash, marker = (LINES[anchor], None)
            if entry.redundant == "dashes":
                dash = DASHES[anchor][place % len(DASHES[anchor])]
            elif entry.redundant == "markers":
                marker = MARKERS[place % len(MARKERS)]
            missing = f"no {ANCHOR_LABELS[anchor]} samples"
            curves.append(Curve(key, label, name, pair[anchor], dash, marker, place, missing))
    return curves


def dataset_styles(
    datasets: pd.Series, entry: FigureEntry, labels: Mapping[str, str]
) -> dict[str, tuple[str, int, dict]]:
    """Return for each data set, in order, its label, its place among all of ``labels``, and its colours by anchor."""
    found = ordered(datasets, labels, entry.datasets)
    every = list(dict.fromkeys([*labels, *found]))
    palette = colours(entry.palette, len(every))
    return {dataset: (name, every.index(dataset), palette[every.index(dataset)]) for dataset, name in found.items()}


def _range(n: pd.Series) -> str:
    low, high = (int(n.min()), int(n.max())) if len(n) else (0, 0)
    return f", n = {low}" if low == high else f", n = {low}–{high}"
