"""Download a question set of the Hugging Face Hub: one Parquet file with a manifest."""

import argparse
import math
from pathlib import Path

from deltap import cli
from deltap.hub import Repository
from deltap.lock import locked
from deltap.questions.hub import fetch_dataset
from deltap.settings import DatasetDownload


def main(options: argparse.Namespace) -> None:
    """Download ``options.settings`` into ``options.out``."""
    # Runs share the folder: whoever comes second waits, and finds it filled.
    lock = options.out.with_name(f".{options.out.name}.lock")
    with locked(lock, str(options.out), patience=math.inf):
        fetch_dataset(cli.settings(DatasetDownload, options.settings), options.out, options.others)


if __name__ == "__main__":
    parser = cli.parser(__doc__)
    parser.add_argument("--settings", required=True, help="settings.DatasetDownload: JSON, or a file's path")
    parser.add_argument(
        "--others",
        type=Repository.parse,
        nargs="*",
        default=[],
        help="other repositories that must be accessible too",
    )
    parser.add_argument("--out", required=True, type=Path, help="the download's directory")
    cli.run(main, parser)
