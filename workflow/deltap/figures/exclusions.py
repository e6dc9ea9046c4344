"""How many of the questions asked each exclusion cost."""

from math import ceil

import pandas as pd
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from deltap.errors import DeltapError
from deltap.figures.canvas import canvas, finish, ordered
from deltap.figures.legend import add_legend
from deltap.figures.sources import Labels
from deltap.figures.style import style
from deltap.settings import ABSTAINED, ExclusionsFigure

HEIGHT_OF_A_BAR = 0.28
HEIGHT_AROUND = 1.0
# Colours of reasons: ColorBrewer's Set2 does not look like a data set's.
_PALETTE = ("#66c2a5", "#fc8d62", "#8da0cb", "#e78ac3", "#a6d854", "#ffd92f", "#e5c494", "#b3b3b3")


def draw(samples: pd.DataFrame, entry: ExclusionsFigure, labels: Labels, notice: str | None = None) -> Figure:
    """Return the figure of SAMPLES rows, or of LABELS rows; of both only what they share is needed.

    A bar for each data set, in per cent of the questions asked, with a part for each reason; behind it the numbers.
    """
    if samples.empty:
        raise DeltapError("the table has no rows to draw")
    rows = samples.astype({"model": str, "dataset": str})
    reasons = rows["exclusion"].astype(object)
    # An abstained answer is excluded too, which only SAMPLES says itself.
    rows["reason"] = reasons.where(reasons.notna() | (rows["label"].astype(str) != ABSTAINED), ABSTAINED)
    models = ordered(rows["model"], labels["model"], entry.models)
    datasets = ordered(rows["dataset"], labels["dataset"], entry.datasets)
    found = list(rows["reason"].value_counts().index)
    colours = {reason: _PALETTE[index % len(_PALETTE)] for index, reason in enumerate(found)}
    asked = rows.groupby(["model", "dataset"]).size()
    lost = rows.groupby(["model", "dataset", "reason"]).size()
    with style(entry.font_size):
        figure, panels = canvas(entry, list(models.values()), HEIGHT_AROUND + HEIGHT_OF_A_BAR * len(datasets), True)
        longest = 0.0
        for panel, model in zip(panels, models, strict=True):
            panel.grid(axis="x")
            panel.grid(visible=False, axis="y")
            for index, dataset in enumerate(datasets):
                number, left = int(asked.get((model, dataset), 0)), 0.0
                for reason in found if number else ():
                    share = 100 * lost.get((model, dataset, reason), 0) / number
                    panel.barh(index, share, left=left, height=0.6, color=colours[reason])
                    left += share
                text = f"{round(left * number / 100)} of {number}" if number else "no data"
                panel.annotate(text, (left, index), (3, 0), textcoords="offset points", va="center", fontsize="small")
                longest = max(longest, left)
            panel.set_yticks(range(len(datasets)), list(datasets.values()))
            panel.tick_params(axis="y", length=0)
            panel.set_xlabel("Questions left out (%)")
        panels[0].set_ylim(len(datasets) - 0.4, -0.6)
        panels[0].set_xlim(0, max(1.0, ceil(14 * longest) / 10))  # room for the numbers
        if colours:
            handles = [Patch(facecolor=colour, label=reason.replace("_", " ")) for reason, colour in colours.items()]
            add_legend(figure, handles, 1, entry.columns)
        finish(figure, panels, notice)
    return figure
