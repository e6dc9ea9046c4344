"""How many of the test samples flip at each layer, with the 95% interval of such a share."""

from math import ceil

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from deltap.figures.auroc import dataset_curves
from deltap.figures.canvas import ordered
from deltap.figures.delta_p import curve_rows
from deltap.figures.over_layers import Axis, draw_over_layers
from deltap.figures.sources import Labels
from deltap.settings import FlipRateFigure
from deltap.statistics import share_interval


def draw(summary: pd.DataFrame, entry: FlipRateFigure, labels: Labels, notice: str | None = None) -> Figure:
    """Return the figure of SUMMARY rows of the grouping ``per_layer``, of both anchors."""
    keys = ["model", "dataset", "layer"]
    counts = curve_rows(summary, entry).pivot_table("n", keys, "anchor", aggfunc="sum", sort=False, fill_value=0)
    flips = counts.get("q_anchored", pd.Series(0.0, counts.index)).to_numpy(float)
    n = counts.sum(axis=1).to_numpy(float)
    rows = counts.index.to_frame(index=False).assign(n=n)
    low, high = share_interval(flips, n, level=0.95)
    with np.errstate(invalid="ignore"):
        rows = rows.assign(curve="dataset " + rows["dataset"], mean=100 * flips / n, low=100 * low, high=100 * high)
    rows["panel"] = rows["model"]
    top = 10 * ceil(max(rows["high"].max(), 1) / 10)
    return draw_over_layers(
        rows,
        dataset_curves(rows, entry, labels),
        ordered(rows["model"], labels["model"], entry.models),
        Axis("Samples that flip (%)", (0, top), range(0, top + 1, 10 if top <= 50 else 20), zero=0),
        entry,
        notice=notice,
    )
