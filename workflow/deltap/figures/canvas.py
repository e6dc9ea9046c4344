"""What figures are drawn on: a row or more of panels, one per model, and what stands around them."""

from collections.abc import Mapping, Sequence
from math import ceil

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.text import Text

from deltap.figures.style import GREY, NOTICE
from deltap.settings import FigureEntry

# Inches, of the ACL's A4 style: a column of 77 mm, a page's text of 160 mm.
WIDTHS = {"one-column": 3.03, "two-columns": 6.3}
# Height of each row of panels after the first, as a share of the figure's height with one row.
FURTHER_ROW = 0.6
# How far the two columns of a data set stand from its middle, in data sets, and how wide they are.
APART = 0.21
COLUMN = 0.34
# Of a panel's width, in inches, and the font's size, in points.
NOTE_CHARACTERS = 125


def inches(width: str | float) -> float:
    """Return a figure's width in inches."""
    return WIDTHS[width] if isinstance(width, str) else width


def ordered(slugs: pd.Series, labels: Mapping[str, str], chosen: Sequence[str] | None = None) -> dict[str, str]:
    """Return slug → label for the slugs that occur: the ``chosen`` first, then those of ``labels``, in their order."""
    present = slugs.unique()
    order = [*(chosen or ()), *labels, *present]
    return {slug: labels.get(slug, slug) for slug in dict.fromkeys(order) if slug in present}


def canvas(entry: FigureEntry, titles: Sequence[str], height: float, sharex: bool = False) -> tuple[Figure, list[Axes]]:
    """Return a figure with one panel for each title, in rows of equal length, the last perhaps shorter.

    ``height`` (inches, with one row) is taken where the entry says none.
    """
    n_rows = ceil(len(titles) / entry.panels_per_row)
    n_columns = ceil(len(titles) / n_rows)
    size = inches(entry.width), (entry.height or height) * (1 + FURTHER_ROW * (n_rows - 1))
    figure = Figure(figsize=size, layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots(n_rows, n_columns, sharex=sharex, sharey=True, squeeze=False)
    for panel in axes.flat[len(titles) :]:
        panel.remove()
    panels = list(axes.flat[: len(titles)])
    for panel, title in zip(panels, titles, strict=True):
        panel.set_title(title)
    return figure, panels


def finish(figure: Figure, panels: Sequence[Axes], notice: str | None = None) -> None:
    """Place everything for good, the same in every format, with ``notice`` above the panels."""
    if notice:
        figure.suptitle(notice, color=NOTICE, fontsize="medium", fontweight="bold")
    figure.draw_without_rendering()  # from here on the panels' widths are known
    _fit([panel.title for panel in panels], [panel.bbox.width for panel in panels])
    _fit([panel.xaxis.label for panel in panels], [panel.bbox.width for panel in panels])
    names = [(label, panel) for panel in panels for label in panel.get_xticklabels(minor=True)]
    _fit([label for label, _ in names], [0.96 * panel.bbox.width * len(panels) / len(names) for _, panel in names])
    figure.set_layout_engine("none")


def note(panel: Axes, text: str, font_size: float, points: np.ndarray) -> None:
    """Write a remark in small grey letters into the corner of a panel that covers the fewest of its curves' points.

    ``points`` has the shape (points, 2), in the panel's units, NaN allowed. Of equal corners the upper right is taken,
    because curves of ΔP seldom are there.
    """
    places = panel.transData.transform(points[np.isfinite(points).all(axis=1)])
    written = panel.text(0, 0, text, transform=panel.transAxes, fontsize=font_size, color=GREY, zorder=4)
    written.set_in_layout(False)

    def covered(corner: tuple[float, float]) -> int:
        _put(written, corner)
        box = written.get_window_extent().padded(0.5 * font_size)
        return int(((places >= box.min) & (places <= box.max)).all(axis=1).sum()) if text else 0

    _put(written, min([(0.99, 0.99), (0.01, 0.01), (0.99, 0.01), (0.01, 0.99)], key=covered))


def _put(text: Text, corner: tuple[float, float]) -> None:
    text.set_position(corner)
    text.set(ha="right" if corner[0] > 0.5 else "left", va="top" if corner[1] > 0.5 else "bottom")


def _fit(texts: Sequence[Text], widths: Sequence[float]) -> None:
    """Make all texts smaller, where one is wider than the pixels it has."""
    shares = [width / max(text.get_window_extent().width, 1) for text, width in zip(texts, widths, strict=True)]
    if min(shares, default=1) < 1:
        for text in texts:
            text.set_fontsize(text.get_fontproperties().get_size_in_points() * min(shares))


def pair_axis(panel: Axes, datasets: Sequence[str], below: Sequence[Sequence[str]], meaning: str) -> None:
    """Give a panel of two columns per data set its x axis: Q and A, what stands ``below`` each, then the data set.

    ``meaning`` explains the numbers.
    The columns of data set i stand at i - `APART` and i + `APART`.
    """
    texts = [f"{letter}\n{text}" for pair in below for letter, text in zip("QA", pair, strict=True)]
    places = [index + shift for index in range(len(datasets)) for shift in (-APART, APART)]
    panel.set_xticks(places, texts, fontsize="small")
    panel.set_xticks(range(len(datasets)), datasets, minor=True)
    panel.tick_params(axis="x", which="both", length=0)
    panel.tick_params(axis="x", which="minor", pad=3 * panel.xaxis.get_ticklabels()[0].get_fontsize())
    panel.set_xlim(-0.6, len(datasets) - 0.4)
    panel.set_xlabel(meaning, color=GREY, fontsize="small")
