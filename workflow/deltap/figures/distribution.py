"""ΔP of the single test samples at the reference layer k*, by the anchor that each has there."""

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from deltap.errors import DeltapError
from deltap.figures.canvas import APART, COLUMN, canvas, finish, ordered, pair_axis
from deltap.figures.delta_p import dataset_styles
from deltap.figures.sources import Labels
from deltap.figures.style import Colour, delta_p_limits, style
from deltap.settings import ANCHORS, DistributionFigure

HEIGHT = 2.6
BOXED = 5
RASTERISED = 200  # points of a column, above which a vector file holds them as an image


def draw(samples: pd.DataFrame, entry: DistributionFigure, labels: Labels, notice: str | None = None) -> Figure:
    """Return the figure of DELTA_P rows that hold each test sample once, at its k*.

    Every sample is a point. A box spans the middle half of a group, the line in it is the median; groups of fewer than
    five samples have points only. Below each group stands its size.
    """
    if samples.empty:
        raise DeltapError("the table has no rows to draw")
    rows = samples.astype(dict.fromkeys(["model", "dataset", "anchor"], str))
    models = ordered(rows["model"], labels["model"], entry.models)
    styles = dataset_styles(rows["dataset"], entry, labels["dataset"])
    with style(entry.font_size):
        figure, panels = canvas(entry, list(models.values()), HEIGHT)
        panels[0].set_ylim(*delta_p_limits(rows["delta_p"].to_numpy(float), entry.y_min, entry.y_max))
        for panel, model in zip(panels, models, strict=True):
            if panel.get_subplotspec().is_first_col():  # type: ignore[union-attr]
                panel.set_ylabel("ΔP at k*")
            panel.axhline(0, color="0.6", linewidth=0.6, zorder=1)
            found = rows[rows["model"] == model]
            groups = [
                [
                    found.loc[(found["dataset"] == dataset) & (found["anchor"] == anchor), "delta_p"]
                    for anchor in ANCHORS
                ]
                for dataset in styles
            ]
            scatter = np.random.default_rng(0)
            for index, (pair, (_, _, colours)) in enumerate(zip(groups, styles.values(), strict=True)):
                for values, anchor, shift in zip(pair, ANCHORS, (-APART, APART), strict=True):
                    _draw_group(panel, index + shift, values.to_numpy(float), colours[anchor], scatter)
            below = [[str(len(values)) for values in pair] for pair in groups]
            pair_axis(panel, [name for name, _, _ in styles.values()], below, "Number of samples")
        finish(figure, panels, notice)
    return figure


def _draw_group(panel: Axes, x: float, values: np.ndarray, colour: Colour, scatter: np.random.Generator) -> None:
    # Points are moved sideways, lest they cover each other.
    places = x + scatter.uniform(-0.4 * COLUMN, 0.4 * COLUMN, len(values))
    many = len(values) > RASTERISED
    panel.scatter(
        places, values, s=4, color=[colour], alpha=0.15 if many else 0.4, linewidths=0, zorder=2, rasterized=many
    )
    if len(values) >= BOXED:
        line = {"color": colour, "linewidth": 0.9}
        panel.boxplot(
            values, positions=[x], widths=COLUMN, showfliers=False, patch_artist=True, manage_ticks=False, zorder=3,
            boxprops={"facecolor": (*colour, 0.2), "edgecolor": colour, "linewidth": 0.9},
            medianprops={**line, "linewidth": 1.8}, whiskerprops=line, capprops={"linewidth": 0},
        )  # fmt: skip
