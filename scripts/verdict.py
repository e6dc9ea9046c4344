"""Test what the published figure claims on a run's tidy table; write the verdict as JSON and to read."""

import argparse
from pathlib import Path

from deltap import cli
from deltap.delta_p import each_series
from deltap.files import write_json, write_text
from deltap.provenance import provenance
from deltap.settings import VerdictStage
from deltap.tables import DELTA_P, iterate_table, read_metadata
from deltap.verdict import as_json, curves, findings, report


def main(options: argparse.Namespace) -> None:
    """Judge one model and data set after another, then all of them together."""
    stage = cli.settings(VerdictStage, options.settings)
    metadata = read_metadata(options.table)
    names = {kind: dict(pairs) for kind, pairs in metadata.get("labels", {}).items()}
    series = (
        table
        for table in each_series(iterate_table(options.table, DELTA_P))
        if str(table["extractor"][0]) == stage.extractor
    )
    found = [item for table in series if (item := curves(table, stage.verdict, stage.bootstrap))]
    judged = findings(found, stage.verdict, stage.bootstrap.level)
    made_by = provenance(__file__, stage.model_dump(mode="json"), inputs=metadata.get("provenance"))
    write_json(options.json, {**as_json(judged, stage.verdict), "provenance": made_by})
    write_text(options.out, report(judged, stage.verdict, names))
    cli.logger.info("%d findings%s", len(judged), cli.counts(item.verdict for item in judged))


if __name__ == "__main__":
    parser = cli.parser(__doc__)
    parser.add_argument("--table", required=True, type=Path, help="the tidy table (Parquet)")
    parser.add_argument("--settings", required=True, help="settings.VerdictStage: JSON, or a file's path")
    parser.add_argument("--out", required=True, type=Path, help="the verdict to read (Markdown)")
    parser.add_argument("--json", required=True, type=Path, help="the verdict (JSON)")
    cli.run(main, parser)
