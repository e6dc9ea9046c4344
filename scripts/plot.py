#!/usr/bin/env python3
"""Draw figures by their definitions, of any kind, from finished tables.

    plot.py --figures config/figures.yaml --only auroc groups --table results/demo --out my_figures

A table is a run's folder of results, or the file that the figures' kind needs. This is what 'snakemake figures' calls.
"""

import argparse
import json
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from itertools import chain
from pathlib import Path

from deltap import cli
from deltap.errors import DeltapError, nearest
from deltap.figures.kinds import write
from deltap.figures.sources import suitable
from deltap.run import definition, definitions
from deltap.settings import FigureEntry, PlotStage, TableSource


def main(options: argparse.Namespace) -> None:
    """Draw every figure, several at a time."""
    stage = cli.settings(PlotStage, options.settings) if options.settings else _from_file(options.figures)
    for name in options.only:
        if name not in stage.figures:
            raise DeltapError(f"--only: no figure {name!r}{nearest(name, stage.figures)}")
    names = options.only or list(stage.figures)
    draw = partial(_draw, options, stage)
    with ProcessPoolExecutor(options.jobs) as pool:
        written = pool.map(draw, names) if min(options.jobs, len(names)) > 1 else map(draw, names)
        for path in chain.from_iterable(written):
            cli.logger.info("wrote %s", path)


def _from_file(path: Path) -> PlotStage:
    """Return the definitions of a file such as config/figures.yaml."""
    found = definitions(path)
    return PlotStage(figures={name: definition(name, path, value, FigureEntry) for name, value in found.items()})


def _draw(options: argparse.Namespace, stage: PlotStage, name: str) -> list[Path]:
    """Draw one figure in its formats and return its files."""
    entry = stage.figures[name]
    labels = {kind: dict(pairs) for kind, pairs in json.loads(options.labels).items()}
    try:
        tables = suitable(options.table, entry)
        if options.expected and not tables:
            cli.logger.info("nothing is finished yet for %s", name)
            return []
        # A table that does not suit is read all the same, and refused by what it lacks.
        sources = entry.tables or [TableSource(path=str(path)) for path in tables or options.table[:1]]
        if not sources:
            raise DeltapError("no table to draw from: give one with --table")
        stem, notice = name, None
        if options.expected:
            stem = f"{name}_partial"
            if len(sources) < options.expected:
                notice = f"Incomplete: {len(sources)} of {options.expected} pairs of model and data set"
        files = [options.out / f"{stem}.{kind}" for kind in entry.formats or stage.formats]
        write(__file__, entry, stage, sources, files, labels, notice)
    except DeltapError as error:
        raise DeltapError(f"figure {name!r}: {error}") from None
    return files


def arguments() -> argparse.ArgumentParser:
    """Return the command line."""
    parser = cli.parser(__doc__)
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--figures", type=Path, help="a file of definitions such as config/figures.yaml")
    what.add_argument("--settings", help="settings.PlotStage: JSON, or the path of a JSON or YAML file")
    parser.add_argument("--only", nargs="+", default=[], metavar="NAME", help="of the definitions, these")
    parser.add_argument("--table", type=Path, nargs="*", default=[], help="tables, or folders of results")
    parser.add_argument("--labels", default="{}", help="labels of models and data sets that the tables lack, as JSON")
    parser.add_argument("--expected", type=int, help="draw what is there of so many pairs of model and data set")
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    parser.add_argument("--out", type=Path, required=True, help="the figures' folder")
    return parser


if __name__ == "__main__":
    cli.run(main, arguments())
