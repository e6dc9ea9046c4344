#!/usr/bin/env python3
"""Draw ΔP against layer from summary tables: one panel per model, as PNG, PDF or SVG.

    plot_delta_p.py --table summary.parquet --out delta_p.png --out delta_p.pdf

A table of samples (delta_p.parquet) will do as well; it is summarised first. Neither needs a model.
"""

import argparse
import json
from pathlib import Path

from deltap import cli
from deltap.figures.delta_p import draw
from deltap.figures.save import file_format, save
from deltap.figures.summary import read_labels, read_summaries, select
from deltap.files import file_sha256
from deltap.provenance import provenance
from deltap.settings import ANCHORS, GROUPINGS, POSITIONS, SITES, BootstrapSettings, FigureEntry


def main(options: argparse.Namespace) -> None:
    """Draw the figure that the command line asks for, once for each file."""
    for path in options.out:
        file_format(path)
    entry = cli.settings(FigureEntry, options.settings) if options.settings else FigureEntry()
    chosen = {key: getattr(options, key) for key in ("site", "position", "grouping", "extractor")}
    entry = entry.model_copy(update={key: value for key, value in chosen.items() if value})
    summary = read_summaries(options.table, BootstrapSettings())
    rows = select(summary, entry, options.models, options.datasets)
    figure = draw(rows, entry, read_labels(options.table), options.anchors)
    made_by = provenance(__file__, entry.model_dump(mode="json"), tables=[file_sha256(path) for path in options.table])
    for path in options.out:
        save(figure, path, json.dumps(made_by, sort_keys=True))
        cli.logger.info("wrote %s", path)


def arguments() -> argparse.ArgumentParser:
    """Return the command line."""
    parser = cli.parser(__doc__)
    parser.add_argument("--table", type=Path, nargs="+", action="extend", required=True, help="summary tables")
    parser.add_argument("--out", type=Path, nargs="+", action="extend", required=True, help="files to write")
    parser.add_argument("--settings", help="a figure's entry: JSON, or the path of a JSON or YAML file")
    parser.add_argument("--site", choices=SITES, help="instead of the settings'")
    parser.add_argument("--position", choices=POSITIONS, help="instead of the settings'")
    parser.add_argument("--grouping", choices=GROUPINGS, help="instead of the settings'")
    parser.add_argument("--extractor", help="needed where the table has several")
    parser.add_argument("--models", nargs="+", help="these only")
    parser.add_argument("--datasets", nargs="+", help="these only")
    parser.add_argument("--anchors", nargs="+", choices=ANCHORS, default=ANCHORS, help="these only")
    return parser


if __name__ == "__main__":
    cli.run(main, arguments())
