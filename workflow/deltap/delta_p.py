"""ΔP: how far a probe's probability moves when attention from the exact question tokens is cut."""

from collections.abc import Iterable, Iterator, Sequence
from functools import reduce
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from deltap.anchors import anchor
from deltap.errors import DeltapError
from deltap.settings import ANCHORS, BootstrapSettings, DeltaPStage, ReferenceClass
from deltap.statistics import group_mean, resampling_counts
from deltap.tables import DELTA_P, SERIES, SUMMARY


def delta_p(p_clean: np.ndarray, p_knockout: np.ndarray, reference_is_truthful: np.ndarray | bool) -> np.ndarray:
    """Return ΔP = 100 · (P_knockout(c) - P_clean(c)) in percentage points, for the reference class c.

    Arguments are probabilities of ``truthful`` and whether c is ``truthful``; any shapes that broadcast.
    """
    change = 100.0 * (np.asarray(p_knockout, dtype=np.float64) - np.asarray(p_clean, dtype=np.float64))
    return np.where(reference_is_truthful, change, -change)


def tidy(anchors: pa.Table, stage: DeltaPStage) -> pa.Table:
    """Return the DELTA_P rows of one anchor, for each configured grouping, from one series' ANCHORS.

    They are those of the method itself: the exact question cut, plain probes and groups.
    """
    frame = anchors.to_pandas()
    frame["delta_p"] = delta_p(frame["p_clean"].to_numpy(), frame["p_knockout"].to_numpy(), _reference(frame, stage))
    per_grouping = {
        "per_layer": anchor(frame["flips"].to_numpy()),
        "reference": frame["anchor_reference"].astype(str).to_numpy(),
    }
    parts = [
        frame[per_grouping[grouping] == stage.anchor].assign(
            intervention="exact_question", estimate="plain", draw=0, grouping=grouping, anchor=stage.anchor
        )
        for grouping in stage.groupings
    ]
    return pa.Table.from_pandas(pd.concat(parts)[DELTA_P.names], DELTA_P, preserve_index=False)


def _reference(frame: pd.DataFrame, stage: DeltaPStage) -> np.ndarray:
    """Return for each row whether the reference class is ``truthful``."""
    match stage.reference_class:
        case "truthful":
            return np.ones(len(frame), dtype=bool)
        case "gold":
            return (frame["label"] == "truthful").to_numpy()
        case "predicted":
            return (frame["predicted"] == "truthful").to_numpy()
        case "predicted_at_reference":
            keys = ["site", "position", "question_id"]
            at_reference = frame[frame["layer"] == frame["k_star"]].set_index(keys)["predicted"]
            found = at_reference.reindex(pd.MultiIndex.from_frame(frame[keys].astype(str)))
            return (found == "truthful").to_numpy()


def with_reference_class(table: pa.Table, reference_class: ReferenceClass, path: str | Path) -> pa.Table:
    """Return a DELTA_P table (read from ``path``) with ΔP for another reference class.

    Raises DeltapError for ``predicted_at_reference``, because the table does not tell k*.
    """
    if reference_class == "predicted_at_reference":
        raise DeltapError(f"{path}: the tidy table does not tell the reference layer; give the run's anchors.parquet")
    column = "label" if reference_class == "gold" else "predicted"
    is_truthful = reference_class == "truthful" or (table[column].cast(pa.string()).to_numpy() == "truthful")
    values = delta_p(table["p_clean"].to_numpy(), table["p_knockout"].to_numpy(), is_truthful)
    place = table.schema.get_field_index("delta_p")
    return table.set_column(place, "delta_p", pa.array(values, pa.float32()))


def each_series(parts: Iterable[pa.Table]) -> Iterator[pa.Table]:
    """Yield the rows of one model, data set and extractor after another, from parts in which they stand together."""
    waiting: list[pa.Table] = []
    for part in parts:
        part = part.unify_dictionaries()  # grouping asks for it
        for key in pa.TableGroupBy(part, SERIES, use_threads=False).aggregate([]).to_pylist():
            match = reduce(pc.and_, (pc.equal(part[name], value) for name, value in key.items()))
            if waiting and any(waiting[0][name][0].as_py() != value for name, value in key.items()):
                yield pa.concat_tables(waiting)
                waiting = []
            waiting.append(part.filter(match))
    if waiting:
        yield pa.concat_tables(waiting)


def summarise(table: pa.Table, settings: BootstrapSettings, anchors: Sequence[str] = ANCHORS) -> pa.Table:
    """Return mean ΔP with its interval (SUMMARY) for every group and layer of a DELTA_P table.

    The bootstrap draws from the samples of a model and data set, over both anchors. Each of ``anchors`` is listed at
    every layer, with n = 0 where it has no sample. Where a control was drawn several times a sample counts as often as
    it is in the group, and n is the mean over the draws, rounded.
    """
    kinds = ["intervention", "estimate", "grouping", "site", "position"]
    needed = [*SERIES, *kinds, "draw", "anchor", "layer", "question_id", "delta_p"]
    rows: list[dict[str, Any]] = []
    for series, samples in table.select(needed).to_pandas().groupby(SERIES, sort=False, observed=True):
        places, ids = pd.factorize(samples["question_id"], sort=True)
        samples = samples.assign(sample=places)
        counts = resampling_counts(len(ids), settings)
        for group, part in samples.groupby(kinds, sort=False, observed=True):
            layers = np.arange(part["layer"].max() + 1)
            draws = part["draw"].nunique()
            for name in anchors:
                chosen = part[part["anchor"] == name]
                where = (chosen["sample"].to_numpy(), chosen["layer"].to_numpy())
                sums, times = np.zeros((len(ids), len(layers))), np.zeros((len(ids), len(layers)))
                np.add.at(sums, where, chosen["delta_p"].to_numpy(float))
                np.add.at(times, where, 1.0)
                _, mean, low, high = group_mean(sums, times, counts, settings.level, settings.over_layers)
                n = np.rint(times.sum(axis=0) / draws).astype(int)
                statistics = zip(layers, n, mean, low, high, strict=True)
                key = dict(zip([*SERIES, *kinds], [*series, *group], strict=True))
                rows += [
                    {
                        **key,
                        "anchor": name,
                        "layer": layer,
                        "n": n,
                        "mean": mean,
                        "ci_low": low,
                        "ci_high": high,
                    }
                    for layer, n, mean, low, high in statistics
                ]
    return pa.Table.from_pandas(pd.DataFrame(rows, columns=SUMMARY.names), SUMMARY, preserve_index=False)
