"""Write the tidy ΔP rows (DELTA_P) of one anchor's samples, from the anchors of one model and data set."""

import argparse
from pathlib import Path

from deltap import cli
from deltap.delta_p import tidy
from deltap.provenance import provenance
from deltap.settings import DeltaPStage
from deltap.tables import ANCHORS, DELTA_P, read_metadata, read_table, write_table


def main(options: argparse.Namespace) -> None:
    """Compute ΔP of one anchor."""
    stage = cli.settings(DeltaPStage, options.settings)
    table = tidy(read_table(options.anchors, ANCHORS), stage)
    inputs = read_metadata(options.anchors).get("provenance")
    write_table(
        options.out, table, DELTA_P, {"provenance": provenance(__file__, stage.model_dump(mode="json"), inputs=inputs)}
    )
    cli.logger.info("%s: %d rows", stage.anchor, len(table))


if __name__ == "__main__":
    parser = cli.parser(__doc__)
    parser.add_argument("--settings", required=True, help="settings.DeltaPStage: JSON, or a file's path")
    parser.add_argument("--anchors", required=True, type=Path, help="the anchors (Parquet)")
    parser.add_argument("--out", required=True, type=Path, help="the tidy rows (Parquet)")
    cli.run(main, parser)
