"""Curves: the sweep's time against samples, layers and length of the prompt, and both passes' against processes."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pandas as pd
import seaborn as sns
from matplotlib.figure import Figure

from benchmarks import material
from benchmarks.memory import tiny_model
from benchmarks.sizes import Size
from benchmarks.sweep import one_pass_per_layer, ours
from benchmarks.timing import interleaved, must_agree
from deltap.figures.style import style
from deltap.models.language_model import LanguageModel
from deltap.settings import ModelSettings

OURS = "two passes (this project)"
OTHER = "one pass per layer, stopping there"
PANELS = {
    "samples": "samples",
    "layers": "layers",
    "prompt": "tokens of the few-shot prefix",
    "processes": "processes that hold the model",
}
LAYERS, SAMPLES = 10, 4
"""Where the other quantity is varied."""


def points(size: Size, models: Path, scratch: Path) -> pd.DataFrame:
    """Return one row for each run: panel, x, contestant, seconds."""
    return pd.DataFrame(
        [*_sweeps(size, models), *_processes(size, scratch)], columns=["panel", "x", "contestant", "seconds"]
    )


def _sweeps(size: Size, models: Path) -> Iterator[tuple[str, int, str, float]]:
    run = material.demo(models)
    model = material.load(run, "few-shot")
    prefix = model.prompter.prefix_ids
    samples = material.samples(run, model, max(size.curve_samples))

    def timed(panel: str, x: int, chosen: material.Samples, begin: list[int]) -> Iterator[tuple[str, int, str, float]]:
        contestants = {
            OURS: ours(model.engine, chosen, begin),
            OTHER: one_pass_per_layer(model.engine.model, chosen, stop=True),
        }
        must_agree({name: sweep() for name, sweep in contestants.items()})
        for name, seconds in interleaved(contestants, size.curve_runs, warm_up=0).items():
            yield from ((panel, x, name, value) for value in seconds)

    for layers in sorted(size.curve_layers, reverse=True):
        _keep(model, layers)
        yield from timed("layers", layers, samples.first(SAMPLES), prefix)
    # From the whole model again, since layers are only taken away.
    model = material.load(run, "few-shot", LAYERS)
    for number in size.curve_samples:
        yield from timed("samples", number, samples.first(number), prefix)
    for tokens in size.curve_prefix:
        begin = material.of_length(prefix, tokens)
        yield from timed("prompt", tokens, samples.first(SAMPLES).behind(prefix, begin), begin)


def _keep(model: LanguageModel, layers: int) -> None:
    if layers < model.engine.layers:
        material.keep_layers(model, layers)


def _processes(size: Size, scratch: Path) -> Iterator[tuple[str, int, str, float]]:
    """Time both passes of a random model in one process and split between two, with one thread each."""
    sizes = {"hidden_size": 512, "intermediate_size": 1536, "num_hidden_layers": LAYERS, "head_dim": 64}
    heads = {"num_attention_heads": 8, "num_key_value_heads": 4}
    model = tiny_model(scratch / "split-model", "llama", **sizes, **heads)
    for ranks in (1, 2):
        split = {"engine": "accelerate", "ranks": ranks} if ranks > 1 else {}
        entry = ModelSettings(kind="base", dtype="float32", device="cpu", threads=1, **split)
        out = scratch / f"ranks-{ranks}.json"
        command = [sys.executable, "scripts/launch.py", "--ranks", str(ranks), "--engine", entry.engine]
        command += ["--device", "cpu", "--", "benchmarks/ranks.py", "--model", str(model)]
        command += ["--entry", entry.model_dump_json(), "--samples", "16", "--runs", str(2 * size.curve_runs)]
        path = os.pathsep.join([str(material.ROOT), str(material.ROOT / "workflow"), os.environ.get("PYTHONPATH", "")])
        environment = {**os.environ, "PYTHONPATH": path}
        done = subprocess.run(
            [*command, "--out", str(out)], cwd=material.ROOT, env=environment, capture_output=True, text=True
        )
        if done.returncode:
            raise RuntimeError(f"both passes in {ranks} processes failed:\n{done.stdout}{done.stderr}")
        yield from (("processes", ranks, OURS, seconds) for seconds in json.loads(out.read_text()))


def draw(found: pd.DataFrame) -> Figure:
    """Return a figure with a panel for each quantity; both axes logarithmic, bands from the lowest to the highest."""
    with style():
        figure = Figure((9.5, 2.6), layout="constrained")  # pyplot would keep it
        axes = figure.subplots(1, len(PANELS), sharey=True)
        for axis, (panel, label) in zip(axes, PANELS.items(), strict=True):
            data = found[found["panel"] == panel]
            sns.lineplot(
                data, x="x", y="seconds", hue="contestant", style="contestant", hue_order=[OURS, OTHER],
                style_order=[OURS, OTHER], markers=["o", "s"], estimator="median", errorbar=("pi", 100),
                palette=["C0", "C1"], ax=axis, legend=panel == "samples",
            )  # fmt: skip
            axis.set(xscale="log", yscale="log", xlabel=label, ylabel="seconds")
            ticks = sorted(data["x"].unique())
            axis.set_xticks(ticks, [str(tick) for tick in ticks])
            axis.minorticks_off()
        sns.move_legend(axes[0], "upper left", title=None, fontsize=6.5)
        axes[0].margins(y=0.3)
    return figure
