"""How well the probes tell truthful from hallucinated answers: AUROC against layer, with its 95% interval."""

from math import floor

import pandas as pd
from matplotlib.figure import Figure

from deltap.errors import DeltapError
from deltap.figures.canvas import ordered
from deltap.figures.delta_p import dataset_styles
from deltap.figures.over_layers import Axis, Curve, draw_over_layers
from deltap.figures.sources import Labels
from deltap.figures.style import DASHES, MARKERS
from deltap.settings import AurocFigure, LayerFigure
from deltap.statistics import auroc_interval

CHANCE = 0.5


def draw(probes: pd.DataFrame, entry: AurocFigure, labels: Labels, notice: str | None = None) -> Figure:
    """Return the figure of PROBES rows of one split, site, position and extractor."""
    if probes["auroc"].isna().all():
        raise DeltapError("no probe has an AUROC; samples.md says which split lacks which class")
    rows = probes.astype({"model": str, "dataset": str}).assign(curve="dataset " + probes["dataset"].astype(str))
    auroc, truthful, hallucinated = (rows[name].to_numpy(float) for name in ("auroc", "n_truthful", "n_hallucinated"))
    low, high = auroc_interval(auroc, truthful, hallucinated, level=0.95)
    rows = rows.assign(mean=rows["auroc"], low=low, high=high, n=rows["n_truthful"] + rows["n_hallucinated"])
    rows.loc[rows["auroc"].isna(), "n"] = 0  # one class only: no AUROC
    rows["panel"] = rows["model"]
    bottom = min(0.4, floor(10 * rows[["mean", "low"]].min().min()) / 10)
    ticks = [tick / 10 for tick in range(round(10 * bottom), 11)]
    return draw_over_layers(
        rows,
        dataset_curves(rows, entry, labels),
        ordered(rows["model"], labels["model"], entry.models),
        Axis(f"AUROC ({entry.split})", (bottom, 1.0), ticks, zero=CHANCE),
        entry,
        notice=notice,
    )


def dataset_curves(rows: pd.DataFrame, entry: LayerFigure, labels: Labels) -> list[Curve]:
    """Return one solid curve for each data set, in its colour for Q-Anchored."""
    return [
        Curve(
            f"dataset {dataset}",
            name,
            name,
            pair["q_anchored"],
            DASHES["q_anchored"][place % 4] if entry.redundant == "dashes" else "-",
            MARKERS[place % len(MARKERS)] if entry.redundant == "markers" else None,
            place,
            "no value",
        )
        for dataset, (name, place, pair) in dataset_styles(rows["dataset"], entry, labels["dataset"]).items()
    ]
