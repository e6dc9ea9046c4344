"""The rows about inference: the sweep beside others, both passes beside one, and what reading activations costs."""

from collections.abc import Callable, Iterator
from pathlib import Path

from benchmarks import material, peers
from benchmarks.rows import Row
from benchmarks.sizes import Size
from benchmarks.sweep import SITES, Result, bare, one_pass_per_layer, ours, work
from benchmarks.timing import interleaved, must_agree, ratios
from deltap.models.language_model import LanguageModel

OURS = "this project"
FULL = "one headless pass per layer, plain hooks"
STOPPING = "the same, stopping at layer k"
KINDS = {"few-shot": "few-shot prompts", "chat": "no examples"}
TARGETS = {
    ("few-shot", FULL): 20.0,
    ("few-shot", STOPPING): 10.0,
    ("few-shot", "nnsight"): 12.0,
    ("few-shot", "TransformerLens"): 12.0,
    ("chat", FULL): 14.0,
    ("chat", STOPPING): 7.0,
}
BARE = {"few-shot": 1.5, "chat": 2.1}
CAPTURE = 3.0


def rows(size: Size, models: Path) -> Iterator[Row]:
    """Yield the rows of the first table but its last; raises Disagree where contestants give other numbers."""
    run = material.demo(models)
    for kind in KINDS:
        model = material.load(run, kind, size.layers)
        samples, prefix = material.samples(run, model, size.samples), model.prompter.prefix_ids
        if kind == "few-shot" and size.prompt_tokens:
            longer = material.of_length(prefix, size.prompt_tokens)
            samples, prefix = samples.behind(prefix, longer), longer
        yield from _of_kind(kind, size, model, samples, prefix)


def _of_kind(
    kind: str, size: Size, model: LanguageModel, samples: material.Samples, prefix: list[int]
) -> Iterator[Row]:
    engine = model.engine
    described = f"{len(samples)} samples of {samples.tokens:.0f} tokens, {engine.layers} layers"
    group = f"Inference, {KINDS[kind]}: {described}"
    contestants: dict[str, Callable[[], Result]] = {
        OURS: ours(engine, samples, prefix),
        FULL: one_pass_per_layer(engine.model, samples, stop=False),
        STOPPING: one_pass_per_layer(engine.model, samples, stop=True),
    }
    for name in peers.NAMES if kind == "few-shot" else ():
        try:
            contestants[name] = peers.peer(name, engine.model, model.tokenizer, samples)
        except peers.Absent as absent:
            yield Row(group, f"sweep against {name}", (), "times", _at_least(kind, name), skipped=str(absent))
    yield from sweeps(kind, group, contestants, work(samples, prefix, engine.layers), size.runs)

    passes = {
        "both": contestants[OURS],
        "bare": bare(engine.model, samples),
        # Without the prefix, which both would compute and which hides what reading costs.
        "capture": lambda: engine.clean_and_knockout(samples.sequences, samples.positions, SITES, samples.cuts),
        "no hooks": lambda: engine.clean_and_knockout(samples.sequences, samples.positions, (), samples.cuts),
    }
    seconds = interleaved(passes, size.short_runs)
    yield Row(
        group,
        "clean and knockout against one bare model.model forward",
        ratios(seconds, "both", "bare"),
        "times",
        f"at most {BARE[kind]:g} times its time",
        lambda value: value <= BARE[kind],
    )
    yield Row(
        group,
        "capture against the same two forwards without hooks",
        [100 * (ratio - 1) for ratio in ratios(seconds, "capture", "no hooks")],
        "%",
        f"at most {CAPTURE:g}% more",
        lambda value: value <= CAPTURE,
    )


def sweeps(
    kind: str, group: str, contestants: dict[str, Callable[[], Result]], computed: dict[bool | None, int], runs: int
) -> Iterator[Row]:
    """Yield the rows of one sweep by several contestants, the first of which is ours, if all give the same."""
    apart = must_agree({name: run() for name, run in contestants.items()})
    seconds = interleaved(contestants, runs, warm_up=0)  # the first turn was the comparison
    yield Row(group, f"sweep, {OURS}", seconds[OURS], "s", "none")
    for name in list(contestants)[1:]:
        target = TARGETS.get((kind, name))
        yield Row(
            group,
            f"sweep against {name}",
            ratios(seconds, name, OURS),
            "times",
            _at_least(kind, name),
            None if target is None else lambda value, target=target: value >= target,
            f"By tokens and layers, {computed[name != FULL] / computed[None]:.0f} times the work. Activations differ "
            f"by {apart[name]:.0e} of their length at most.",
        )


def _at_least(kind: str, name: str) -> str:
    target = TARGETS.get((kind, name))
    return "none" if target is None else f"at least {target:g} times faster"
