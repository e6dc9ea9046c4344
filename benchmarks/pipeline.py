"""The rest of the pipeline: probes, tables, figure, dry run, starts of jobs, and what the plan states.

Every script runs as its rule calls it, in a process of its own, on synthetic files (`benchmarks.synthetic`).
"""

import json
import sys
from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path

import yaml

from benchmarks import synthetic
from benchmarks.process import ROOT, Took, run, script
from benchmarks.rows import Row
from deltap.run import Run
from deltap.settings import ANCHORS, GROUPINGS, Grouping, ProbesStage

GROUP = "The rest of the pipeline"
SITES, POSITIONS = ("attn", "mlp"), ("exact_answer_last", "last", "before_exact_answer")
PAIRS = [(site, position) for site in SITES for position in POSITIONS]
LAYERS, HIDDEN, PROBED, SAMPLES = 64, 5120, 2000, 1000
MODELS, DATASETS = 12, 4
PROCESSES = 2
PAUSE = 60
"""Seconds without any job that tell one run from the next."""


def rows(size: str, scratch: Path) -> Iterator[Row]:
    """Yield the rows, measured in the folder ``scratch``.

    ``size``: ``full`` measures what the targets name; ``small`` two smaller sizes, and the line through them gives the
    size of the target.
    """
    full = size == "full"
    yield from _probes(full, scratch / "probes")
    for groupings in (GROUPINGS[:1], GROUPINGS):
        yield from _tables(full, groupings, scratch / f"tables{len(groupings)}")
    yield from _dry_run(3, scratch / "dry")
    yield from _starts(3, scratch / "starts")
    yield from _plan(scratch / "plan")
    yield _demo(Path("results/demo"))


def _measured(full: bool, whole: int, small: tuple[int, int], measure: Callable[[int], Took]) -> tuple[Took, str]:
    """Return what the size ``whole`` takes and a note: measured, or by the line through two small sizes."""
    if full:
        return measure(whole), ""
    few, many = (measure(number) for number in small)
    times = (whole - small[1]) / (small[1] - small[0])
    seconds, used = (
        more + times * (more - less)
        for less, more in ((few.seconds, many.seconds), (few.processor_seconds, many.processor_seconds))
    )
    took = Took(seconds, used, many.gigabytes)
    return took, f"By the line through {small[0]} and {small[1]}; memory is that of {small[1]}."


def _rows(what: str, took: Took, note: str, minutes: float, gigabytes: float) -> Iterator[Row]:
    used = f"Of the processor {took.processor_seconds / 60:.1f} min."
    yield Row(
        GROUP,
        what,
        [took.seconds / 60],
        "min",
        f"at most {minutes:g} min",
        lambda value: value <= minutes,
        f"{used} {note}".strip(),
    )
    limit = f"at most {gigabytes:g} GB"
    yield Row(GROUP, f"{what}: memory", [took.gigabytes], "GB", limit, lambda value: value <= gigabytes, note)


def _probes(full: bool, folder: Path) -> Iterator[Row]:
    """Yield the time of the probes of one series; the small sizes are numbers of layers of one site and position."""
    truthful = synthetic.labels(folder / "labels.parquet", PROBED)

    def measure(layers: int) -> Took:
        whole = layers == LAYERS * len(PAIRS)
        pairs = PAIRS if whole else PAIRS[:1]
        sites, positions = (SITES, POSITIONS) if whole else (SITES[:1], POSITIONS[:1])
        synthetic.activations(folder, pairs, layers // len(pairs), truthful, HIDDEN)
        stage = ProbesStage.model_validate({"probe": {}, "sites": sites, "positions": positions})
        took = script(
            "probes",
            *("--settings", stage.model_dump_json(), "--labels", folder / "labels.parquet"),
            *("--clean", *sorted(folder.glob("clean.*.safetensors")), "--jobs", str(PROCESSES)),
            *("--out", folder / "probes.safetensors", "--scores", folder / "probes.parquet"),
        )
        for path in folder.glob("clean.*"):
            path.unlink()
        return took

    took, note = _measured(full, LAYERS * len(PAIRS), (4, 12), measure)
    what = (
        f"probes for {LAYERS} layers × {len(SITES)} sites × {len(POSITIONS)} positions, {HIDDEN:,} dimensions, "
        f"{PROBED:,} samples, {PROCESSES} processes"
    )
    yield from _rows(what, took, note, 10, 6)


def _tables(full: bool, groupings: tuple[Grouping, ...], folder: Path) -> Iterator[Row]:
    """Yield the time of merge, summary and main figure; the small sizes are numbers of models."""
    number = 0

    def measure(models: int) -> Took:
        nonlocal number
        parts = list(synthetic.tables(folder / "parts", models, DATASETS, PAIRS, LAYERS, SAMPLES, groupings))
        number = sum(count for table, _, count in parts if table == "delta_p")
        tidy, summary = folder / "delta_p.parquet", folder / "delta_p_summary.parquet"
        stage = {"figures": {"delta_p": {"site": SITES[0], "position": POSITIONS[0], "grouping": groupings[0]}}}
        each = [
            script(
                "merge",
                *("--table", "delta_p", "--parts", *(path for table, path, _ in parts if table == "delta_p")),
                *("--metadata", json.dumps({"anchors": ANCHORS}), "--out", tidy),
            ),
            script("summarise", "--table", tidy, "--out", summary, "--csv", summary.with_suffix(".csv")),
            script("plot", "--settings", json.dumps(stage), "--table", summary, "--out", folder),
        ]
        for path in folder.rglob("*.parquet"):
            path.unlink()
        seconds, used = sum(took.seconds for took in each), sum(took.processor_seconds for took in each)
        return Took(seconds, used, max(took.gigabytes for took in each))

    took, note = _measured(full, MODELS, (1, 2), measure)
    million = number / 1e6 * (1 if full else MODELS / 2)
    kept = " and ".join(groupings)
    what = (
        f"merge, summary with bootstrap, and figure for {MODELS} models × {DATASETS} data sets × {len(ANCHORS)} "
        f"anchors, {LAYERS} layers, {len(PAIRS)} site/position pairs, {SAMPLES:,} samples each ({kept}: "
        f"{million:.0f} million rows)"
    )
    yield from _rows(what, took, note.replace("1 and 2", "1 and 2 models"), 3, 4)


def _dry_run(runs: int, folder: Path) -> Iterator[Row]:
    """Yield the time of ``snakemake -n`` with every published model."""
    folder.mkdir(parents=True, exist_ok=True)
    known = yaml.safe_load((ROOT / "config" / "models.yaml").read_text("utf-8"))
    models = [name for name in known if not name.startswith("smollm2")][:MODELS]
    file = folder / "many.yaml"
    file.write_text(yaml.safe_dump({"run": "many", "models": models, "inference": {"shards": 16}}), "utf-8")
    took = [
        run([sys.executable, "-m", "snakemake", "-s", ROOT / "Snakefile", "--configfile", file, "-n", "-q"], folder)
        for _ in range(runs)
    ]
    what = f"snakemake -n for {len(models)} models × {DATASETS} data sets × 16 shards"
    for name, values in (
        (what, [each.seconds for each in took]),
        (f"{what}: processor", [each.processor_seconds for each in took]),
    ):
        yield Row(GROUP, name, values, "s", "at most 10 s", lambda value: value <= 10)


def _starts(runs: int, folder: Path) -> Iterator[Row]:
    """Yield what a job's start costs: Snakemake's share, and the imports of scripts."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "Snakefile").write_text(
        'rule all:\n    input: expand("{n}.txt", n=range(int(config["number"])))\n'
        'rule one:\n    output: "{n}.txt"\n    shell: "touch {output}"\n',
        "utf-8",
    )
    command = [sys.executable, "-m", "snakemake", "--cores", "1", "--forceall", "-q", "--config"]
    values = []
    for _ in range(runs):
        many, one = (run([*command, f"number={number}"], folder).seconds for number in (21, 1))
        values.append((many - one) / 20)
    yield Row(GROUP, "a job that does nothing, beyond Snakemake's own start", values, "s", "")
    for name in ("merge", "delta_p", "plot", "anchors", "probes", "inference"):
        values = [script(name, "--help").processor_seconds for _ in range(runs)]
        yield Row(GROUP, f"start of scripts/{name}.py: processor", values, "s", "")


def _plan(folder: Path) -> Iterator[Row]:
    """Yield what the plan states of the paper's run."""
    stage = Run(yaml.safe_load((ROOT / "config" / "config.yaml").read_text("utf-8")), ROOT / "config").plan_stage()
    script("plan", "--settings", stage.model_dump_json(), "--out", folder / "plan.md")
    stated = json.loads((folder / "plan.json").read_text("utf-8"))
    for model in stated["models"]:
        name = stage.models[model["model"]].label
        note = "Activations of both passes, knockout for test samples only, in chunks and in shards."
        yield Row(
            GROUP, f"{name}: disk, as the plan states it", [model["cost"]["activations"] / 1e9], "GB", "", None, note
        )
        each, loading = len(stage.datasets), model["loading"].values()
        yield Row(
            GROUP,
            f"{name}: loads of the model for {each} data sets",
            [model["loads"]],
            "",
            f"{each}",
            lambda value, each=each: value <= each,  # type: ignore[misc]
            f"Loading takes {min(loading):.0%} to {max(loading):.0%} of the time on the plan's GPUs.",
        )


def _demo(results: Path) -> Row:
    """Return how long the demo took that was run last here, by the records that its jobs leave."""
    what, target = "demo, from its first job's start to its last one's end", "at most 6 min"
    jobs = [json.loads(path.read_text("utf-8")) for path in results.glob("logs/**/*.json")]
    if not jobs or not (results / "verdict.json").exists():
        return Row(GROUP, what, (), "min", target, skipped="no demo was run in this folder: make demo")
    times = sorted((datetime.fromisoformat(job["started"]), datetime.fromisoformat(job["ended"])) for job in jobs)
    started, ended = times[0]
    for begun, stopped in times:
        if (begun - ended).total_seconds() > PAUSE:
            return Row(GROUP, what, (), "min", target, skipped="the demo in this folder was made in several runs")
        ended = max(ended, stopped)
    minutes = (ended - started).total_seconds() / 60
    inference = sum(json.loads(path.read_text("utf-8"))["seconds"] for path in results.glob("logs/inference/**/*.json"))
    note = (
        f"Run at {started:%Y-%m-%d %H:%M} UTC. The inference jobs took {inference / 60:.1f} min of it, one after the "
        "other, each after the start of its libraries (above). Fewer questions would be faster, and groups smaller."
    )
    return Row(GROUP, what, [minutes], "min", target, lambda value: value <= 6, note)
