"""Curves with bands over layers: panels side by side, the same curves in each, one legend below."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from textwrap import fill

import numpy as np
import pandas as pd
from matplotlib import rcParams
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from deltap.errors import DeltapError
from deltap.figures.canvas import NOTE_CHARACTERS, canvas, finish, note
from deltap.figures.legend import add_legend
from deltap.figures.style import BAND_ALPHA, THIN, Colour, Dash, layer_ticks, style
from deltap.settings import LayerFigure

HEIGHT = 3.2
MARKERS_PER_CURVE = 8
VERTICAL = "_vertical"  # the label, which no legend shows, of the line at a reference layer


@dataclass(frozen=True)
class Curve:
    """What one curve looks like in every panel, and in the legend."""

    name: str  # as in the rows' column ``curve``
    label: str
    dataset: str  # the data set's label
    colour: Colour
    dash: Dash = "-"
    marker: str | None = None
    place: int = 0  # curves of different places put their markers on different layers
    missing: str = "no samples"  # what is said where it has no points
    width: float = 1  # times that of a line
    band: float = BAND_ALPHA  # opacity of its band
    aside: bool = False  # it accompanies another curve: without a legend of its own, and nothing is said of it

    def line(self, x: Sequence[float] | np.ndarray = (), y: Sequence[float] | np.ndarray = ()) -> Line2D:
        """Return its line through the points ``x``, ``y``."""
        return Line2D(
            x, y, color=self.colour, linestyle=self.dash, marker=self.marker, markeredgewidth=0, label=self.label,
            linewidth=self.width * rcParams["lines.linewidth"], zorder=3,
        )  # fmt: skip


@dataclass(frozen=True)
class Axis:
    """The y axis of all panels, with a line at ``zero``, and what the layers of the x axis are."""

    label: str
    limits: tuple[float, float]
    ticks: Sequence[float]
    zero: float
    layers: str = "Layer"


def draw_over_layers(
    rows: pd.DataFrame,
    curves: Sequence[Curve],
    titles: Mapping[str, str],
    axis: Axis,
    entry: LayerFigure,
    legend_group: int = 1,
    thin_below: int = 0,
    notice: str | None = None,
    legend_title: str | None = None,
    marked: Mapping[str, int] | None = None,
) -> Figure:
    """Return the figure.

    ``rows`` has the columns ``panel, curve, layer, n, mean, low, high``, one row per panel, curve and layer; a mean or
    an interval that is not there is NaN, which makes a gap. ``panel`` is a model, or a model and a data set; ``titles``
    are those of the panels, in order. ``marked`` is panel → reference layer, at which a vertical line stands.

    Raises DeltapError when two rows claim the same point, or one with samples has no mean.
    """
    _check(rows)
    with style(entry.font_size):
        figure, panels = canvas(entry, list(titles.values()), HEIGHT)
        panels[0].set_ylim(*axis.limits)
        panels[0].set_yticks(axis.ticks)
        for panel, name in zip(panels, titles, strict=True):
            if panel.get_subplotspec().is_first_col():  # type: ignore[union-attr]
                panel.set_ylabel(axis.label)
            panel.axhline(axis.zero, color="0.6", linewidth=0.6, zorder=1)
            panel.set_xlabel(axis.layers if entry.x == "layer" else "Depth")
            _draw_panel(panel, rows[rows["panel"] == name], curves, entry, thin_below, (marked or {}).get(name))
        listed = [curve for curve in curves if not curve.aside]
        add_legend(figure, [curve.line() for curve in listed], legend_group, entry.columns, legend_title)
        finish(figure, panels, notice)
        for panel, name in zip(panels, titles, strict=True):
            found = rows[rows["panel"] == name]
            width = NOTE_CHARACTERS * panel.bbox.width / figure.dpi / entry.font_size
            lines = _notes(found, listed, thin_below, int(width))
            if marked and name in marked:
                lines.append(f"line: k* = {marked[name]}")
            text = "\n".join(lines)
            points = [line.get_xydata() for line in panel.lines if not str(line.get_label()).startswith("_")]
            points += [np.column_stack([np.full(50, x), np.linspace(*axis.limits, 50)]) for x in _verticals(panel)]
            note(panel, text, 0.85 * entry.font_size, np.concatenate([np.empty((0, 2)), *points]))
    return figure


def _verticals(panel: Axes) -> list[float]:
    """Return where a panel has a vertical line."""
    return [float(np.asarray(line.get_xdata())[0]) for line in panel.lines if line.get_label() == VERTICAL]


def _check(rows: pd.DataFrame) -> None:
    keys = ["panel", "curve", "layer"]
    _refuse(rows[rows.duplicated(keys)], "two rows", "choose one site, position, grouping and extractor, and no table "
            "twice; tables of the same models and data sets need labels")  # fmt: skip
    _refuse(rows[(rows["n"] > 0) & ~np.isfinite(rows["mean"])], "n > 0 but no mean", "compute the table again")


def _refuse(rows: pd.DataFrame, mistake: str, remedy: str) -> None:
    if len(rows):
        first = rows.iloc[0]
        raise DeltapError(
            f"the table has {mistake} for model {first['panel']}, {first['curve']}, layer {first['layer']}: {remedy}"
        )


def _draw_panel(
    panel: Axes,
    rows: pd.DataFrame,
    curves: Sequence[Curve],
    entry: LayerFigure,
    thin_below: int,
    marked: int | None,
) -> None:
    layers = int(max(rows["layer"].max(), marked or 0)) + 1
    positions = np.arange(layers, dtype=float)
    if entry.x == "depth":
        positions /= max(layers - 1, 1)
        panel.set_xticks([0, 0.25, 0.5, 0.75, 1], ["0", "0.25", "0.5", "0.75", "1"])
    else:
        panel.set_xticks(layer_ticks(layers))
    margin = max(0.02 * positions[-1], 0.5 * (entry.x == "layer"), 0.02)
    panel.set_xlim(-margin, positions[-1] + margin)
    if marked is not None:
        panel.axvline(positions[marked], color="0.6", linewidth=0.6, zorder=1, label=VERTICAL)
    for curve in curves:
        points = rows[rows["curve"] == curve.name].set_index("layer").reindex(range(layers))
        _draw_curve(panel, positions, points, curve, 0 if curve.aside else thin_below)


def _draw_curve(panel: Axes, x: np.ndarray, points: pd.DataFrame, curve: Curve, thin_below: int) -> None:
    """Draw a curve from its points, one row per layer, empty where there is none."""
    n, mean, low, high = (points[name].to_numpy(float) for name in ("n", "mean", "low", "high"))
    banded = np.isfinite(low) & np.isfinite(high)
    colour = (*curve.colour, curve.band)
    panel.fill_between(x, low, high, where=banded.tolist(), facecolor=colour, linewidth=0, zorder=2)
    alone = _isolated(banded)  # a band of one layer has no area
    panel.vlines(x[alone], low[alone], high[alone], colors=[colour], linewidth=2, zorder=2)
    marked = _isolated(np.isfinite(mean))  # a line of one layer has no length
    line = curve.line(x, mean)
    if curve.marker:
        step = max(1, len(x) // MARKERS_PER_CURVE)
        marked |= np.arange(len(x)) % step == curve.place % step  # data sets take turns, lest they cover each other
    else:
        line.set_marker("o")
    line.set_markevery(np.flatnonzero(marked).tolist())
    panel.add_line(line)
    few = n < thin_below
    if few.any():
        width = line.get_linewidth()
        line.set_linewidth(THIN * width)
        thick = curve.line(x, np.where(few, np.nan, mean))
        thick.set(linewidth=width, marker="", label="_thick")
        panel.add_line(thick)


def _isolated(present: np.ndarray) -> np.ndarray:
    """Tell for each layer whether it is present and its neighbours are not."""
    padded = np.pad(present, 1)
    return present & ~padded[:-2] & ~padded[2:]


def _notes(rows: pd.DataFrame, curves: Sequence[Curve], thin_below: int, characters: int) -> list[str]:
    """Return what a panel has to say: which data sets and groups it lacks, and where curves are thin."""
    missing: dict[str, dict[str, None]] = {}
    for curve in curves:
        found = rows.loc[rows["curve"] == curve.name, "n"]
        if not found.any():
            what = curve.missing if len(found) else "no data"
            missing.setdefault(what, {})[curve.dataset] = None
    lines = [fill(f"{what}: {', '.join(names)}", characters, break_on_hyphens=False) for what, names in missing.items()]
    listed = rows["curve"].isin([curve.name for curve in curves])
    if rows.loc[listed, "n"].between(1, thin_below - 1).any():
        lines.append(f"thin: n < {thin_below}")
    return lines
