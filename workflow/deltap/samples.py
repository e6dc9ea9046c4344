"""The samples that probes see: labelled answers with activations."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from deltap.errors import DeltapError
from deltap.settings import ABSTAINED, SPLITS
from deltap.tables import LABELS, read_metadata, read_table

Columns = dict[str, np.ndarray]


@dataclass(frozen=True)
class Samples:
    """Samples of one model, data set and extractor that are neither excluded nor abstained."""

    constants: dict[str, str]
    """model, dataset and extractor."""
    columns: Columns
    """question_id, split, label, truthful, shard, clean_row and knockout_row (-1 where there is none)."""
    provenance: Any
    """What made the table."""


def probe_samples(path: Path) -> Samples:
    """Read the samples from a LABELS table.

    Raises DeltapError if the table is empty, or mixes models or data sets.
    """
    table = read_table(path, LABELS)
    constants = {}
    for name in ("model", "dataset", "extractor"):
        values = sorted(set(table[name].to_pylist()))
        if len(values) != 1:
            raise DeltapError(f"{path}: expected one {name}, found {', '.join(values) or 'no rows'}")
        constants[name] = values[0]
    rows = [
        row
        for row in table.select(
            ["question_id", "split", "label", "exclusion", "shard", "clean_row", "knockout_row"]
        ).to_pylist()
        if row["exclusion"] is None and row["label"] != ABSTAINED
    ]
    columns = {name: np.array([row[name] for row in rows], dtype=str) for name in ("question_id", "split", "label")}
    for name in ("shard", "clean_row", "knockout_row"):
        columns[name] = np.array([-1 if row[name] is None else row[name] for row in rows], dtype=int)
    columns["truthful"] = columns["label"] == "truthful"
    return Samples(constants, columns, read_metadata(path).get("provenance"))


def by_split(samples: Samples) -> dict[str, Columns]:
    """Return the samples' columns for each split."""
    return {
        split: {name: column[samples.columns["split"] == split] for name, column in samples.columns.items()}
        for split in SPLITS
    }
