"""Pack a run's tables, figures, configuration and provenance into one archive that other machines draw from."""

import argparse
from pathlib import Path

from deltap import cli
from deltap.archive import write_archive


def main(options: argparse.Namespace) -> None:
    """Write the archive of one run."""
    files = {path.relative_to(options.results).as_posix(): path for path in options.files}
    files |= {path.name: path for path in options.about}
    write_archive(options.out, options.run, files)
    cli.logger.info("%d files, %.1f MB", len(files), options.out.stat().st_size / 1e6)


if __name__ == "__main__":
    parser = cli.parser(__doc__)
    parser.add_argument("--run", required=True, help="the run's name, which the archive's folder has too")
    parser.add_argument("--results", required=True, type=Path, help="the run's folder of results")
    parser.add_argument("--files", required=True, type=Path, nargs="+", help="of the run, in that folder")
    parser.add_argument("--about", type=Path, nargs="*", default=[], help="files of deltap itself, such as its licence")
    parser.add_argument("--out", required=True, type=Path, help="the archive (ZIP)")
    cli.run(main, parser)
