"""One legend below all panels."""

from collections.abc import Sequence
from math import ceil

from matplotlib.artist import Artist
from matplotlib.figure import Figure
from matplotlib.lines import Line2D


def add_legend(figure: Figure, handles: Sequence[Artist], group: int, columns: int, title: str | None = None) -> None:
    """Add a legend of ``handles`` with as many columns as fit into the figure's width, at most ``columns``.

    Each run of ``group`` handles (the anchors of one data set) stands together in one column.
    """
    for limit in range(columns, 0, -1):
        entries, n_columns = _grid(handles, group, limit)
        legend = figure.legend(
            handles=entries,
            loc="outside lower center",
            ncols=n_columns,
            handlelength=2.0,
            handletextpad=0.6,
            columnspacing=0.9,
            labelspacing=0.35,
            title=title,
        )
        if limit == 1 or legend.get_window_extent().width <= figure.bbox.width:
            return
        legend.remove()


def _grid(handles: Sequence[Artist], group: int, columns: int) -> tuple[list[Artist], int]:
    """Return the legend's entries and its number of columns.

    matplotlib fills a legend column by column and as evenly as it can. Blank entries at the end make the
    columns equally long; without them it would tear a group apart.
    """
    groups = len(handles) // group
    per_column = ceil(groups / columns)
    n_columns = ceil(groups / per_column)
    blanks = (n_columns * per_column - groups) * group
    return [*handles, *(Line2D([], [], linestyle="none", label=" ") for _ in range(blanks))], n_columns
