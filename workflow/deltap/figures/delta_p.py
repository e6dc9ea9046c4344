"""The figure of ΔP against layer: one panel per model, one curve per data set and anchor."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import ceil
from textwrap import fill

import numpy as np
import pandas as pd
import pyarrow as pa
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from deltap.errors import DeltapError
from deltap.figures.legend import add_legend
from deltap.figures.style import (
    ANCHOR_LABELS,
    BAND_ALPHA,
    GREY,
    MARKERS,
    Colour,
    colours,
    delta_p_limits,
    layer_ticks,
    style,
)
from deltap.figures.summary import Labels
from deltap.settings import ANCHORS, FigureEntry

PANELS_PER_ROW = 4
# Height of each row of panels after the first, as a share of the figure's height with one row.
FURTHER_ROW = 0.6
TICK_STEP = 20
NOTE_CHARACTERS_PER_INCH = 16
MARKERS_PER_CURVE = 8


@dataclass(frozen=True)
class _Curve:
    """What one data set and anchor look like in every panel, and in the legend."""

    dataset: str
    name: str  # the data set's label
    place: int  # the data set's among all
    anchor: str
    label: str
    colour: Colour
    marker: str | None

    def line(self, x: Sequence[float] | np.ndarray = (), y: Sequence[float] | np.ndarray = ()) -> Line2D:
        return Line2D(
            x,
            y,
            color=self.colour,
            linestyle="-" if self.anchor == "q_anchored" else "--",
            marker=self.marker,
            markeredgewidth=0,
            label=self.label,
            zorder=3,
        )


def draw(
    summary: pa.Table | pd.DataFrame, entry: FigureEntry, labels: Labels, anchors: Sequence[str] = ANCHORS
) -> Figure:
    """Return the figure of a summary's rows.

    ``summary`` has the columns of `deltap.tables.SUMMARY` and at most one row per model, data set, anchor and
    layer (see `deltap.figures.summary.select`). ``labels`` gives order and labels of models and data sets; a
    slug that it lacks comes last. A data set's colours follow its place in ``labels``, so it keeps them in a
    figure of fewer data sets. A mean of no sample is a gap in its line; one of a single sample has no band.

    Raises DeltapError when there is nothing to draw, or two rows claim the same point.
    """
    rows = _rows(summary)
    models = _ordered(rows["model"], labels.get("model", {}))
    curves = _curves(rows, entry, labels.get("dataset", {}), anchors)
    with style():
        figure, panels = _panels(entry, len(models))
        bounds = rows.loc[rows["anchor"].isin(anchors), ["mean", "ci_low", "ci_high"]].to_numpy(float)
        low, high = delta_p_limits(bounds, entry.y_min, entry.y_max)
        panels[0].set_ylim(low, high)
        panels[0].set_yticks(range(TICK_STEP * ceil(low / TICK_STEP), int(high) + 1, TICK_STEP))
        for panel, (model, label) in zip(panels, models.items(), strict=True):
            _draw_panel(panel, rows[rows["model"] == model], curves, label)
        add_legend(figure, [curve.line() for curve in curves], len(anchors), entry.columns)
        figure.draw_without_rendering()  # from here on the panels' widths are known
        _fit_titles(panels)
        for panel, model in zip(panels, models, strict=True):
            _add_notes(panel, rows[rows["model"] == model], curves, panel.bbox.width / figure.dpi)
    return figure


def _rows(summary: pa.Table | pd.DataFrame) -> pd.DataFrame:
    rows = summary.to_pandas() if isinstance(summary, pa.Table) else summary
    if rows.empty:
        raise DeltapError("the summary table has no rows to draw")
    rows = rows.astype(dict.fromkeys(["model", "dataset", "anchor"], str))
    keys = ["model", "dataset", "anchor", "layer"]
    _refuse(
        rows[rows.duplicated(keys)][keys],
        "choose one site, position, grouping and extractor, and no table twice",
        "two rows",
    )
    broken = (rows["n"] > 0) & ~np.isfinite(rows["mean"].astype(float))
    _refuse(rows[broken][keys], "compute the summary again", "n > 0 but no mean")
    return rows


def _refuse(rows: pd.DataFrame, remedy: str, mistake: str) -> None:
    if len(rows):
        point = ", ".join(f"{key} {value}" for key, value in rows.iloc[0].items())
        raise DeltapError(f"the summary table has {mistake} for {point}: {remedy}")


def _ordered(slugs: pd.Series, labels: Mapping[str, str]) -> dict[str, str]:
    """Return slug → label for the slugs that occur, those of ``labels`` first and in its order."""
    present = slugs.unique()
    order = [slug for slug in labels if slug in present] + [slug for slug in present if slug not in labels]
    return {slug: labels.get(slug, slug) for slug in order}


def _curves(rows: pd.DataFrame, entry: FigureEntry, labels: Mapping[str, str], anchors: Sequence[str]) -> list[_Curve]:
    datasets = _ordered(rows["dataset"], labels)
    every = list({**labels, **datasets})
    palette = colours(entry.palette, len(every))
    curves = []
    for dataset, name in datasets.items():
        place = every.index(dataset)
        marker = MARKERS[place % len(MARKERS)] if entry.redundant else None
        for anchor in anchors:
            label = f"{ANCHOR_LABELS[anchor]} ({name})"
            if entry.show_n:
                label += _range(rows.loc[(rows["dataset"] == dataset) & (rows["anchor"] == anchor), "n"])
            curves.append(_Curve(dataset, name, place, anchor, label, palette[place][anchor], marker))
    return curves


def _range(n: pd.Series) -> str:
    low, high = (int(n.min()), int(n.max())) if len(n) else (0, 0)
    return f", n = {low}" if low == high else f", n = {low}–{high}"


def _panels(entry: FigureEntry, number: int) -> tuple[Figure, list[Axes]]:
    """Return a figure with ``number`` panels in rows of equal length, the last perhaps shorter."""
    n_rows = ceil(number / PANELS_PER_ROW)
    n_columns = ceil(number / n_rows)
    height = entry.height * (1 + FURTHER_ROW * (n_rows - 1))
    figure = Figure(figsize=(entry.width, height), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots(n_rows, n_columns, sharey=True, squeeze=False)
    for panel in axes[:, 0]:
        panel.set_ylabel("ΔP")
    for panel in axes.flat[number:]:
        panel.remove()
    return figure, list(axes.flat[:number])


def _draw_panel(panel: Axes, rows: pd.DataFrame, curves: Sequence[_Curve], title: str) -> None:
    layers = int(rows["layer"].max()) + 1
    margin = max(0.5, 0.02 * (layers - 1))
    panel.set_title(title)
    panel.set_xlabel("Layer")
    panel.set_xlim(-margin, layers - 1 + margin)
    panel.set_xticks(layer_ticks(layers))
    panel.axhline(0, color="0.6", linewidth=0.6, zorder=1)
    for curve in curves:
        _draw_curve(panel, _points(rows, curve).set_index("layer").reindex(range(layers)), curve)


def _points(rows: pd.DataFrame, curve: _Curve) -> pd.DataFrame:
    return rows[(rows["dataset"] == curve.dataset) & (rows["anchor"] == curve.anchor)]


def _draw_curve(panel: Axes, points: pd.DataFrame, curve: _Curve) -> None:
    """Draw a curve from its points, one row per layer, empty where there is none."""
    layers = points.index.to_numpy()
    mean, low, high = (points[name].to_numpy(float) for name in ("mean", "ci_low", "ci_high"))
    banded = np.isfinite(low) & np.isfinite(high)
    colour = (*curve.colour, BAND_ALPHA)
    panel.fill_between(layers, low, high, where=banded.tolist(), facecolor=colour, linewidth=0, zorder=2)
    alone = _isolated(banded)  # a band of one layer has no area
    panel.vlines(layers[alone], low[alone], high[alone], colors=[colour], linewidth=2, zorder=2)
    marked = _isolated(np.isfinite(mean))  # a line of one layer has no length
    line = curve.line(layers, mean)
    if curve.marker:
        step = max(1, len(layers) // MARKERS_PER_CURVE)
        marked |= layers % step == curve.place % step  # data sets take turns, lest they cover each other
    else:
        line.set_marker("o")
    line.set_markevery(np.flatnonzero(marked).tolist())
    panel.add_line(line)


def _isolated(present: np.ndarray) -> np.ndarray:
    """Tell for each layer whether it is present and its neighbours are not."""
    padded = np.pad(present, 1)
    return present & ~padded[:-2] & ~padded[2:]


def _add_notes(panel: Axes, rows: pd.DataFrame, curves: Sequence[_Curve], width: float) -> None:
    """Tell which curves a panel of ``width`` inches lacks for want of samples."""
    missing: dict[str, list[str]] = {}
    for curve in curves:
        if not _points(rows, curve)["n"].any():
            missing.setdefault(f"no {ANCHOR_LABELS[curve.anchor]} samples", []).append(curve.name)
    characters = int(NOTE_CHARACTERS_PER_INCH * width)
    text = "\n".join(fill(f"{what}: {', '.join(names)}", characters) for what, names in missing.items())
    # Above zero, where curves seldom are.
    note = panel.text(0.99, 0.99, text, transform=panel.transAxes, fontsize=7, color=GREY, ha="right", va="top")
    note.set_in_layout(False)


def _fit_titles(panels: Sequence[Axes]) -> None:
    """Make all titles smaller, where one is wider than its panel."""
    share = min(panel.bbox.width / panel.title.get_window_extent().width for panel in panels)
    if share < 1:
        for panel in panels:
            panel.title.set_fontsize(panel.title.get_fontproperties().get_size_in_points() * share)
