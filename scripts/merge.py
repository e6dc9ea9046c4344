"""Merge the parts of a table (one per model, data set, …) into one file, in the given order."""

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from deltap import cli
from deltap.mixed import Shared, differences, refuse_mixed
from deltap.provenance import made, provenance
from deltap.tables import ANCHORS, CONTROLS, DELTA_P, LABELS, PROBES, SERIES, iterate_table, write_batches

SCHEMAS = {"delta_p": DELTA_P, "anchors": ANCHORS, "probes": PROBES, "answers": LABELS, "controls": CONTROLS}


def check(parts: Sequence[Path]) -> None:
    """Check that parts belong together, and say where other code made some of them.

    Raises DeltapError that names the difference where the parts of one series and stage do not come from the same
    inputs, or the series of one model or data set not from the same one.
    """
    shared = Shared()
    series: dict[tuple[str, ...], tuple[Path, dict[str, Any]]] = {}
    for path in parts:
        about = made(path) or {}
        shared.refuse_others(path, about)
        what = {name: about.get(name) for name in ("stage", "code", "versions", "inputs")}
        keys: dict[tuple[str, ...], None] = {}
        for batch in iterate_table(path, pa.schema([]), SERIES):
            keys.update(
                (tuple(map(str, row.values())), None) for row in batch.group_by(SERIES).aggregate([]).to_pylist()
            )
        for key in keys:
            first, other = series.setdefault((str(what["stage"]), *key), (path, what))
            refuse_mixed(first, path, other, what)
    stages: dict[str, tuple[Path, dict[str, Any]]] = {}
    for (stage, *_), (path, what) in series.items():
        first, other = stages.setdefault(stage, (path, what))
        if different := differences({**other, "inputs": None}, {**what, "inputs": None}):
            cli.logger.warning("%s and %s were made by different versions: %s", first, path, "; ".join(different))


def main(options: argparse.Namespace) -> None:
    """Merge ``options.parts``; the result lists what made each part."""
    schema = SCHEMAS[options.table]
    check(options.parts)
    inputs = [made(path) for path in options.parts]
    batches = (batch for path in options.parts for batch in iterate_table(path, schema))
    made_by = provenance(__file__, {}, inputs=inputs)
    write_batches(options.out, batches, schema, {**json.loads(options.metadata), "provenance": made_by})


if __name__ == "__main__":
    parser = cli.parser(__doc__)
    parser.add_argument("--table", required=True, choices=SCHEMAS, help="which table the parts are of")
    parser.add_argument("--parts", required=True, type=Path, nargs="+", help="the parts (Parquet)")
    parser.add_argument("--metadata", default="{}", help="labels and anchors for whoever reads the table, as JSON")
    parser.add_argument("--out", required=True, type=Path, help="the merged table (Parquet)")
    cli.run(main, parser)
