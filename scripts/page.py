"""Turn a Markdown report into a page for browsers."""

import argparse
from pathlib import Path

from deltap import cli
from deltap.files import write_text
from deltap.page import page


def main(options: argparse.Namespace) -> None:
    """Write the page of one report."""
    write_text(options.out, page(options.markdown.read_text(encoding="utf-8")))


if __name__ == "__main__":
    parser = cli.parser(__doc__)
    parser.add_argument("--markdown", required=True, type=Path, help="the report (Markdown)")
    parser.add_argument("--out", required=True, type=Path, help="the page (HTML)")
    cli.run(main, parser)
