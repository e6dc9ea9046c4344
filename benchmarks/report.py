"""The benchmark's results as a page of Markdown."""

import os
import platform
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import pandas as pd
import psutil
import torch

from benchmarks.peers import NAMES
from benchmarks.rows import Row
from deltap import markdown

_PACKAGES = ("deltap", "torch", "transformers", *NAMES.values(), "numpy", "scikit-learn", "pyarrow", "snakemake")

_METHOD = """How it is measured: contestants take turns (A, B, A, B, …) in one process, and a ratio is that of two times
of one turn, so that whatever else the machine does meets both; other work on the same cores still widens the spread,
which is given from the lowest to the highest value. Before any time is compared, all contestants must give the same
activations within 1e-4 of their length; a difference ends the run. Each gets the same samples in one batch: bundled
questions, answered by the model itself, read at the last token, sites `attn` and `mlp`. One sweep is a clean pass and
what it takes to know every layer's activation under knockout. Ours computes in every run what the prompts begin with,
which a job does once. The others pad whole sequences, use no cache and leave out the head (TransformerLens computes it
for one position after its last pass); "stopping at layer k" ends a pass behind the MLP of layer k. TransformerLens
attends in transformers' eager way, the others by SDPA. With few-shot prompts the ratios are the product of two things,
two passes and the prefix that is computed once; none of the others shares a prefix. Without examples they are nearer
to what two passes alone gain.

How the sizes were chosen: the default is to end within a quarter of an hour on two quiet cores, and one pass per layer
takes much of that, so that its batch is small. Larger batches favour two passes, because more samples share a prefix.
The curves vary one quantity at a time, with 4 samples, and with 10 layers where layers are not varied; the processes
share a random model of 10 layers (hidden size 512), with one thread each.
"""


def table(rows: Sequence[Row]) -> str:
    """Return the rows of one group as a Markdown table, notes beneath it."""
    lines: list[list[str]] = []
    notes: list[str] = []
    for row in rows:
        mark, note = "", f"Skipped: {row.skipped}." if row.skipped else row.note
        if note:
            if note not in notes:
                notes.append(note)
            mark = f" [{notes.index(note) + 1}]"
        if row.skipped:
            figures = ["skipped", markdown.NOTHING, "0"]
        else:
            low, high = row.spread
            figures = [
                f"{number(row.median)} {row.unit}",
                f"{number(low)} … {number(high)}",
                str(len(row.values)),
            ]
        lines.append([f"{row.what}{mark}", *figures, row.target, verdict(row)])
    header = ["what", "median", "lowest … highest", "runs", "target", "reached"]
    listed = "".join(f"{index}. {note}\n" for index, note in enumerate(notes, 1))
    return markdown.table(header, lines) + (f"\n{listed}" if listed else "")


def number(value: float) -> str:
    """Return a number with three significant digits, or all digits before its point."""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def verdict(row: Row) -> str:
    """Return whether a row reaches its target."""
    if row.skipped:
        return "not measured"
    return markdown.NOTHING if row.reached is None else "yes" if row.reached(row.median) else "no"


def machine() -> str:
    """Return what the run is measured on: processor, cores, memory, system and versions."""
    there = {}
    for name in _PACKAGES:
        try:
            there[name] = version(name).split("+")[0]
        except PackageNotFoundError:
            there[name] = "absent"
    memory = psutil.virtual_memory().total / 2**30
    load = " ".join(f"{value:.2f}" for value in os.getloadavg())
    return "\n".join(
        [
            f"- Processor: {_processor()}, {psutil.cpu_count()} cores, {torch.get_num_threads()} torch threads; "
            f"{memory:.0f} GiB of memory; {platform.system()} {platform.release()}",
            f"- Load of the machine at the start (1, 5, 15 minutes): {load}",
            f"- Python {platform.python_version()}; " + ", ".join(f"{name} {found}" for name, found in there.items()),
        ]
    )


def _processor() -> str:
    file = Path("/proc/cpuinfo")
    if file.is_file():
        for line in file.read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def page(
    rows: Sequence[Row], curves: pd.DataFrame | None, described: str, command: str, sizes: str, minutes: float
) -> str:
    """Return the whole page; ``curves`` are the points of the scaling curves, drawn in scaling.png."""
    parts = [
        "# Benchmark\n",
        f"Written by `{command}`, which took {minutes:.0f} minutes.\n",
        described + "\n",
        f"Sizes: {sizes}.\n",
        _METHOD,
    ]
    for group in dict.fromkeys(row.group for row in rows):
        parts += [f"## {group}\n", table([row for row in rows if row.group == group])]
    if curves is not None:
        image = "![Time against samples, layers, prefix and processes](scaling.png)\n"
        parts += ["## Scaling\n", image, _curves(curves)]
    return "\n".join(parts)


def _curves(curves: pd.DataFrame) -> str:
    """Return the curves' medians as a table."""
    grouped = curves.groupby(["panel", "contestant", "x"], sort=False)["seconds"]
    found = grouped.agg(["median", "min", "max", "size"]).reset_index()
    lines = [
        [panel, contestant, x, number(median), f"{number(low)} … {number(high)}", runs]
        for panel, contestant, x, median, low, high, runs in found.itertuples(index=False)
    ]
    return markdown.table(["varied", "contestant", "value", "seconds", "lowest … highest", "runs"], lines)
