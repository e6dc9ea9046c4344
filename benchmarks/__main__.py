"""Measure the pipeline beside what people use otherwise, and write results.md and scaling.png.

Small by default (minutes); --size full takes an hour or so. Parts are chosen by --only, and are then printed and not
written, unless --out says where.
"""

import argparse
import dataclasses
import logging
import os
import shlex
import sys
import tempfile
import time
from pathlib import Path

os.environ.setdefault("HF_HUB_OFFLINE", "1")  # nothing here comes from the hub, and libraries ask it
os.environ.setdefault("WANDB_MODE", "disabled")

import pandas as pd

from benchmarks import inference, memory, pipeline, predicted, report, scaling
from benchmarks.rows import Row
from benchmarks.sizes import SIZES, Size
from benchmarks.timing import Disagree
from deltap.errors import DeltapError
from deltap.figures.save import save
from deltap.files import write_text

PARTS = ("inference", "memory", "pipeline", "plan", "scaling")


def main(options: argparse.Namespace) -> None:
    """Measure the chosen parts."""
    started, described = time.monotonic(), report.machine()
    size = chosen_size(options)
    rows: list[Row] = []
    curves: pd.DataFrame | None = None
    with tempfile.TemporaryDirectory(prefix="deltap-bench-") as folder:
        scratch = Path(folder)
        parts = {
            "inference": lambda: inference.rows(size, options.models),
            "memory": lambda: memory.rows(size, scratch),
            "pipeline": lambda: pipeline.rows(options.size, scratch),
            "plan": lambda: predicted.rows(size, options.models),
        }
        for name, measure in parts.items():
            if name in options.only:
                for row in measure():
                    rows.append(row)
                    say(row)
        if "scaling" in options.only:
            curves = scaling.points(size, options.models, scratch)
    minutes = (time.monotonic() - started) / 60
    command = shlex.join(["python", "-m", "benchmarks", *sys.argv[1:]])
    sizes = ", ".join(
        f"{name.replace('_', ' ')} {value}" for name, value in dataclasses.asdict(size).items() if value is not None
    )
    text = report.page(rows, curves, described, command, f"`{options.size}`: {sizes}", minutes)
    out = options.out or (Path(__file__).with_name("results.md") if set(options.only) == set(PARTS) else None)
    if out:
        write_text(out, text)
        if curves is not None:
            save(scaling.draw(curves), out.with_name("scaling.png"), command)
    else:
        print(text)


def chosen_size(options: argparse.Namespace) -> Size:
    """Return the size that the options name, with what they say besides."""
    given = {field.name: getattr(options, field.name, None) for field in dataclasses.fields(Size)}
    return dataclasses.replace(SIZES[options.size], **{name: value for name, value in given.items() if value})


def say(row: Row) -> None:
    """Tell that a row is there."""
    found = row.skipped or f"{report.number(row.median)} {row.unit} (target: {row.target})"
    print(f"[{time.strftime('%H:%M:%S')}] {row.what}: {found}", file=sys.stderr, flush=True)


def parsed(arguments: list[str] | None = None) -> argparse.Namespace:
    """Return the command line's options."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--size", choices=SIZES, default="small")
    parser.add_argument("--only", nargs="+", choices=PARTS, default=PARTS, help="parts to measure; all by default")
    parser.add_argument("--samples", type=int, help="samples in the batch of a sweep")
    parser.add_argument("--layers", type=int, help="use the first so many layers of the model")
    parser.add_argument("--prompt-tokens", type=int, help="make the few-shot prefix so long")
    parser.add_argument("--runs", type=int, help="turns of a sweep")
    parser.add_argument("--short-runs", type=int, help="turns of contestants that differ by a few percent")
    parser.add_argument("--models", type=Path, default=Path("models"), help="folder of the demo's model")
    parser.add_argument("--out", type=Path, help="the page; the figure goes beside it")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    logging.getLogger("deltap").setLevel(logging.ERROR)
    try:
        main(parsed())
    except (DeltapError, Disagree) as error:
        sys.exit(f"error: {error}")
