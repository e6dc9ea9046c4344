"""Differences between models and between data sets, with intervals."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from deltap.controls.compare import Bootstrap, Curve, deeper_half
from deltap.settings import BootstrapSettings, ControlSettings
from deltap.statistics import holm
from deltap.tables import DIFFERENCES


@dataclass(frozen=True)
class Level:
    """What one series comes to over the deeper half of its layers."""

    model: str
    dataset: str
    extractor: str
    statistics: dict[tuple[str, str], Curve]
    """By statistic and grouping, curves of one point."""


def level(table: pa.Table, number: int, settings: ControlSettings, bootstrap: BootstrapSettings) -> Level | None:
    """Return what the method's DELTA_P rows of one series come to, None where it has none at the controls' site.

    ``number`` tells series apart: the samples of each are drawn on their own.
    """
    model, dataset, extractor = (str(table[name][0]) for name in ("model", "dataset", "extractor"))
    wanted = {"site": settings.site, "position": settings.position, "intervention": "exact_question"}
    for name, value in {**wanted, "estimate": "plain"}.items():
        table = table.filter(pc.equal(table[name].cast(pa.string()), value))
    if not len(table):
        return None
    frame = table.select(["grouping", "anchor", "layer", "question_id", "delta_p"]).to_pandas()
    ids = np.unique(frame["question_id"].to_numpy(dtype=str))
    layers = int(frame["layer"].max()) + 1
    draws = Bootstrap(len(ids), bootstrap.model_copy(update={"seed": bootstrap.seed + 1 + number}), settings.min_n)
    statistics = {}
    for grouping, part in frame.groupby("grouping", observed=True):
        where = part["layer"].to_numpy(), np.searchsorted(ids, part["question_id"].to_numpy(dtype=str))
        values, q = np.full((1, layers, len(ids)), np.nan), np.zeros((1, layers, len(ids)), dtype=bool)
        values[0][where], q[0][where] = part["delta_p"], part["anchor"] == "q_anchored"
        of_q = draws.mean(values, q)
        found = {"delta_p": of_q, "gap": of_q - draws.mean(values, ~q), "flip_rate": draws.share(q)}
        for name, curve in found.items():
            statistics[name, str(grouping)] = curve.over(deeper_half(layers))
    return Level(model, dataset, extractor, statistics)


def differences(levels: Sequence[Level], settings: ControlSettings, confidence: float) -> pa.Table:
    """Return the DIFFERENCES between every two models on a data set and every two data sets of a model.

    The samples are others, so the draws of both are independent of each other and the difference is taken draw by draw.
    p is corrected for the number of pairs that a statistic has (Holm).
    """
    rows: list[dict[str, Any]] = []
    for statistic, grouping in sorted({key for item in levels for key in item.statistics}):
        of_pairs = []
        for one, other in _pairs(levels):
            if not all((statistic, grouping) in item.statistics for item in (one, other)):
                continue
            curve = one.statistics[statistic, grouping] - other.statistics[statistic, grouping]
            (low,), (high,), (p,) = *curve.interval(confidence), curve.p()
            if np.isfinite(curve.resampled.estimate[0]):
                of_pairs.append(
                    {
                        "model": one.model,
                        "dataset": one.dataset,
                        "other_model": other.model,
                        "other_dataset": other.dataset,
                        "extractor": one.extractor,
                        "site": settings.site,
                        "position": settings.position,
                        "statistic": statistic,
                        "grouping": grouping,
                        "value": curve.resampled.estimate[0],
                        "ci_low": low,
                        "ci_high": high,
                        "p": p,
                    }
                )
        corrected = holm(np.array([row["p"] for row in of_pairs]))
        rows += [{**row, "p": float(p)} for row, p in zip(of_pairs, corrected, strict=True)]
    return pa.Table.from_pylist(rows, DIFFERENCES)


def _pairs(levels: Sequence[Level]) -> Iterator[tuple[Level, Level]]:
    for one, other in combinations(levels, 2):
        same = (one.model == other.model, one.dataset == other.dataset)
        if one.extractor == other.extractor and any(same):
            yield one, other
