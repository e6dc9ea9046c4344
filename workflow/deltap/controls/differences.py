"""Differences between models and between data sets, with intervals."""

import zlib
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from deltap.controls.compare import Bootstrap, Curve, deeper_half
from deltap.controls.estimates import METHOD
from deltap.settings import ANCHORS, BootstrapSettings, ControlSettings
from deltap.statistics import holm, resampling_counts
from deltap.tables import DIFFERENCES


@dataclass(frozen=True)
class Level:
    """What one series comes to over the deeper half of its layers."""

    model: str
    dataset: str
    extractor: str
    statistics: dict[tuple[str, str], Curve]
    """By statistic and grouping, curves of one point."""


def samples_by_dataset(tables: Iterable[pa.Table], settings: ControlSettings) -> dict[str, set[str]]:
    """Return the test samples of all series on a data set; ``tables``: the DELTA_P rows of one series after another."""
    found: dict[str, set[str]] = {}
    for table in tables:
        own = _methods_own(table, settings)
        if len(own):
            found.setdefault(str(own["dataset"][0]), set()).update(own["question_id"].to_pylist())
    return found


def level(
    table: pa.Table, settings: ControlSettings, bootstrap: BootstrapSettings, question_ids: Collection[str]
) -> Level | None:
    """Return what the method's DELTA_P rows of one series come to, None where it has none at the controls' site.

    ``question_ids``: the test samples of all models on the data set. They are drawn together, by a seed of the data
    set, so that models that answered the same question are compared on it.
    """
    table = _methods_own(table, settings)
    if not len(table):
        return None
    model, dataset, extractor = (str(table[name][0]) for name in ("model", "dataset", "extractor"))
    frame = table.select(["grouping", "anchor", "layer", "question_id", "delta_p"]).to_pandas()
    every = np.array(sorted(question_ids))
    ids = np.unique(frame["question_id"].to_numpy(dtype=str))
    seeded = bootstrap.model_copy(update={"seed": bootstrap.seed + 1 + zlib.crc32(dataset.encode())})
    counts = resampling_counts(len(every), seeded)[:, np.searchsorted(every, ids)]
    draws = Bootstrap(counts, settings.min_n)
    layers = int(frame["layer"].max()) + 1
    anchors = {*frame["anchor"].unique()}
    statistics = {}
    for grouping, part in frame.groupby("grouping", observed=True):
        where = part["layer"].to_numpy(), np.searchsorted(ids, part["question_id"].to_numpy(dtype=str))
        values, q = np.full((1, layers, len(ids)), np.nan), np.zeros((1, layers, len(ids)), dtype=bool)
        values[0][where], q[0][where] = part["delta_p"], part["anchor"] == "q_anchored"
        of_q = draws.mean(values, q)
        found = {"delta_p": of_q}
        if anchors == {*ANCHORS}:  # a run with one anchor has not all samples
            found |= {"gap": of_q - draws.mean(values, ~q), "flip_rate": draws.share(q)}
        for name, curve in found.items():
            statistics[name, str(grouping)] = curve.over(deeper_half(layers))
    return Level(model, dataset, extractor, statistics)


def _methods_own(table: pa.Table, settings: ControlSettings) -> pa.Table:
    wanted = {"site": settings.site, "position": settings.position, "intervention": METHOD, "estimate": "plain"}
    for name, value in wanted.items():
        table = table.filter(pc.equal(table[name].cast(pa.string()), value))
    return table


def differences(levels: Sequence[Level], settings: ControlSettings, confidence: float) -> pa.Table:
    """Return the DIFFERENCES between every two models on a data set and every two data sets of a model.

    The difference is taken draw by draw: models on a data set share the questions that both answered, data sets share
    none. p is corrected for the number of pairs that a statistic has (Holm).
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
