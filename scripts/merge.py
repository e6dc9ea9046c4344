"""Merge the parts of a table (one per model, data set, …) into one file, in the given order."""

import argparse
import json
from pathlib import Path

from deltap import cli
from deltap.provenance import provenance
from deltap.tables import ANCHORS, CONTROLS, DELTA_P, LABELS, PROBES, iterate_table, read_metadata, write_batches

SCHEMAS = {"delta_p": DELTA_P, "anchors": ANCHORS, "probes": PROBES, "answers": LABELS, "controls": CONTROLS}


def main(options: argparse.Namespace) -> None:
    """Merge ``options.parts``; the result lists what made each part."""
    schema = SCHEMAS[options.table]
    inputs = [read_metadata(path).get("provenance") for path in options.parts]
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
