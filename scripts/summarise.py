"""Summarise the tidy table: mean ΔP with its bootstrap interval for every group and layer (SUMMARY)."""

import argparse
from pathlib import Path

import pyarrow as pa
import pyarrow.csv

from deltap import cli
from deltap.delta_p import each_series, summarise
from deltap.files import whole
from deltap.provenance import provenance
from deltap.settings import ANCHORS, BootstrapSettings
from deltap.tables import DELTA_P, SUMMARY, iterate_table, read_metadata, write_table


def main(options: argparse.Namespace) -> None:
    """Summarise one model and data set after another."""
    settings = cli.settings(BootstrapSettings, options.settings)
    series = each_series(iterate_table(options.table, DELTA_P))
    metadata = read_metadata(options.table)
    parts = [summarise(part, settings, metadata.get("anchors", ANCHORS)) for part in series]
    summary = pa.concat_tables([SUMMARY.empty_table(), *parts])
    made_by = provenance(__file__, settings.model_dump(mode="json"), inputs=metadata.get("provenance"))
    write_table(options.out, summary, SUMMARY, {"labels": metadata.get("labels", {}), "provenance": made_by})
    if options.csv:
        with whole(options.csv) as temporary:
            pa.csv.write_csv(summary, temporary)


if __name__ == "__main__":
    parser = cli.parser(__doc__)
    parser.add_argument("--table", required=True, type=Path, help="the tidy table (Parquet)")
    parser.add_argument("--settings", default="{}", help="settings.BootstrapSettings: JSON, or a file's path")
    parser.add_argument("--out", required=True, type=Path, help="the summary (Parquet)")
    parser.add_argument("--csv", type=Path, help="the summary as CSV too")
    cli.run(main, parser)
