"""How large the groups are at the reference layer k*, and how many of their answers are truthful."""

from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from deltap.errors import DeltapError
from deltap.figures.canvas import APART, COLUMN, canvas, finish, ordered, pair_axis
from deltap.figures.delta_p import dataset_styles
from deltap.figures.legend import add_legend
from deltap.figures.sources import Labels
from deltap.figures.style import Colour, style
from deltap.settings import ANCHORS, GroupsFigure

HEIGHT = 2.8
PALE = 0.3
_CLASSES = ("truthful", "hallucinated")


def draw(samples: pd.DataFrame, entry: GroupsFigure, labels: Labels, notice: str | None = None) -> Figure:
    """Return the figure of DELTA_P rows that hold each test sample once, at its k*.

    One column for each anchor: its height is the number of samples, the full part of it the truthful ones, the number
    below it their share. The share of the whole data set stands behind its name.
    """
    if samples.empty:
        raise DeltapError("the table has no rows to draw")
    rows = samples.astype(dict.fromkeys(["model", "dataset", "anchor", "label"], str))
    models = ordered(rows["model"], labels["model"], entry.models)
    styles = dataset_styles(rows["dataset"], entry, labels["dataset"])
    with style(entry.font_size):
        figure, panels = canvas(entry, list(models.values()), HEIGHT)
        for panel, model in zip(panels, models, strict=True):
            if panel.get_subplotspec().is_first_col():  # type: ignore[union-attr]
                panel.set_ylabel("Test samples")
            found = rows[rows["model"] == model]
            counts = found.groupby(["dataset", "anchor", "label"]).size()
            below, names = [], []
            for index, (dataset, (name, _, colours)) in enumerate(styles.items()):
                pairs = [[int(counts.get((dataset, anchor, label), 0)) for label in _CLASSES] for anchor in ANCHORS]
                for (truthful, hallucinated), anchor, shift in zip(pairs, ANCHORS, (-APART, APART), strict=True):
                    _column(panel, index + shift, truthful, hallucinated, colours[anchor])
                below.append([_percent(*pair) for pair in pairs])
                names.append(f"{name}\n{_percent(*(sum(numbers) for numbers in zip(*pairs, strict=True)))}")
            pair_axis(panel, names, below, "Share of truthful answers")
        panels[0].set_ylim(0, 1.08 * max(panel.dataLim.y1 for panel in panels))
        handles = [
            Patch(facecolor=_pale(to_rgb("0.35"), share), edgecolor="0.35", linewidth=0.7, label=label)
            for label, share in zip(_CLASSES, (1, PALE), strict=True)
        ]
        add_legend(figure, handles, 1, entry.columns)
        finish(figure, panels, notice)
    return figure


def _column(panel: Axes, x: float, truthful: int, hallucinated: int, colour: Colour) -> None:
    edge: dict[str, Any] = {"width": COLUMN, "edgecolor": colour, "linewidth": 0.7}
    panel.bar(x, truthful, color=[colour], **edge)
    panel.bar(x, hallucinated, bottom=truthful, color=[_pale(colour, PALE)], **edge)
    total = truthful + hallucinated
    panel.annotate(str(total), (x, total), (0, 1), textcoords="offset points", ha="center", va="bottom",
                   fontsize="small")  # fmt: skip


def _pale(colour: Colour, share: float) -> Colour:
    """Return a colour mixed with white, opaque, so that print and grid do not shine through."""
    red, green, blue = (1 - share * (1 - part) for part in colour)
    return red, green, blue


def _percent(truthful: int, hallucinated: int) -> str:
    total = truthful + hallucinated
    return f"{100 * truthful / total:.0f}%" if total else "–"
