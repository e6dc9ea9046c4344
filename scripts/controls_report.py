"""Write the report on the controls (Markdown), and the differences between models and data sets (DIFFERENCES)."""

import argparse
from pathlib import Path

from deltap import cli
from deltap.controls.differences import differences, level, samples_by_dataset
from deltap.controls.report import report
from deltap.delta_p import each_series
from deltap.files import write_text
from deltap.provenance import provenance
from deltap.settings import ControlsStage
from deltap.tables import CONTROLS, DELTA_P, DIFFERENCES, iterate_table, read_metadata, read_table, write_table


def main(options: argparse.Namespace) -> None:
    """Compare the series and report."""
    stage = cli.settings(ControlsStage, options.settings)
    settings, bootstrap = stage.controls, stage.bootstrap
    metadata = read_metadata(options.table)
    names = {kind: dict(pairs) for kind, pairs in metadata.get("labels", {}).items()}
    samples = samples_by_dataset(each_series(iterate_table(options.table, DELTA_P)), settings)
    levels = []
    for series in each_series(iterate_table(options.table, DELTA_P)):
        of_dataset = samples.get(str(series["dataset"][0]), set())
        if found := level(series, settings, bootstrap, of_dataset):
            levels.append(found)
    between = differences(levels, settings, bootstrap.level)
    inputs = [metadata.get("provenance"), read_metadata(options.statistics).get("provenance")]
    made_by = provenance(__file__, stage.model_dump(mode="json"), inputs=inputs)
    write_table(options.differences, between, DIFFERENCES, {"provenance": made_by})
    statistics = read_table(options.statistics, CONTROLS)
    write_text(options.out, report(statistics, between, stage, names))
    cli.logger.info("%d statistics, %d differences", len(statistics), len(between))


if __name__ == "__main__":
    parser = cli.parser(__doc__)
    parser.add_argument("--settings", required=True, help="settings.ControlsStage: JSON, or a file's path")
    parser.add_argument("--table", required=True, type=Path, help="the tidy table (Parquet)")
    parser.add_argument("--statistics", required=True, type=Path, help="the controls' statistics (Parquet)")
    parser.add_argument("--differences", required=True, type=Path, help="between models and data sets (Parquet)")
    parser.add_argument("--out", required=True, type=Path, help="the report to read (Markdown)")
    cli.run(main, parser)
