#!/usr/bin/env python3
"""Draw ΔP against layer from finished tables: one panel per model, as PNG, PDF, SVG or interactive HTML.

    plot_delta_p.py --table results/demo --out delta_p.png delta_p.pdf
    plot_delta_p.py --table mine.parquet theirs.parquet --label "" "their run" --out both.pdf

A table is a summary (delta_p_summary.parquet), a tidy table (delta_p.parquet), the anchors (anchors.parquet), or the
folder of a run's results. Another reference class or interval needs the anchors or the folder. No table needs a model.
docs/figures.md explains every option; companions of this figure are drawn by plot.py.
"""

import argparse
from pathlib import Path

from deltap import cli
from deltap.errors import DeltapError
from deltap.figures.kinds import write
from deltap.figures.save import file_format
from deltap.settings import BootstrapSettings, DeltaPFigure, PlotStage, TableSource


def main(options: argparse.Namespace) -> None:
    """Draw the figure that the command line asks for, once for each file."""
    for path in options.out:
        file_format(path)
    entry = cli.settings_with(options, DeltaPFigure, options.settings)
    labels = options.label or [None] * len(options.table)
    if len(labels) != len(options.table):
        raise DeltapError(
            f"--label: {len(labels)} labels for {len(options.table)} tables; give one for each, perhaps ''"
        )
    sources = [TableSource(path=str(path), label=label) for path, label in zip(options.table, labels, strict=True)]
    stage = PlotStage(figures={"delta_p": entry}, bootstrap=cli.settings(BootstrapSettings, options.bootstrap))
    write(__file__, entry, stage, sources, options.out)
    for path in options.out:
        cli.logger.info("wrote %s", path)


def arguments() -> argparse.ArgumentParser:
    """Return the command line."""
    parser = cli.parser(__doc__)
    tables = parser.add_argument_group("tables and files")
    tables.add_argument("--table", type=Path, nargs="+", action="extend", required=True, help="tables, or folders")
    tables.add_argument("--label", nargs="+", action="extend", help="one for each table, behind the models' names")
    tables.add_argument("--out", type=Path, nargs="+", action="extend", required=True, help="files to write")
    tables.add_argument("--settings", default="{}", help="a figure's entry: JSON, or the path of a JSON or YAML file")
    tables.add_argument("--bootstrap", default="{}", help="settings.BootstrapSettings, where the table is no summary")
    chosen = parser.add_argument_group("what it shows, instead of the settings' (null: no value)")
    cli.add_options(chosen, DeltaPFigure, without=("kind", "tables", "formats"))
    return parser


if __name__ == "__main__":
    cli.run(main, arguments())
