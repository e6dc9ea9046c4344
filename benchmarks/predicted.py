"""The plan's prediction beside the time that inference really takes here."""

import statistics
import time
from collections.abc import Iterator
from pathlib import Path

import torch

from benchmarks import material
from benchmarks.rows import Row
from benchmarks.sizes import Size
from benchmarks.sweep import SITES
from benchmarks.timing import interleaved
from deltap.cost import Tokens, cost, read_shape
from deltap.settings import PlanSettings


def rows(size: Size, models: Path) -> Iterator[Row]:
    """Yield how many times as long answers and both passes take as the plan says for a device of this peak."""
    run = material.demo(models)
    model = material.load(run, "few-shot")
    shape = read_shape(run.model_directory(material.MODELS["few-shot"]))
    samples = material.samples(run, model, 4 * size.samples)
    number, prefix = len(samples), len(model.prompter.prefix_ids)
    prompts = [sequence[:length] for sequence, length in zip(samples.sequences, samples.prompts, strict=True)]
    answer = samples.tokens - sum(map(len, prompts)) / number
    tokens = Tokens(prefix, round(samples.tokens - answer) - prefix, max(1, round(answer)))
    expected = cost(shape, number, 1.0, tokens, "float32", len(SITES), 1)

    settings, peak = PlanSettings(), peak_flops()
    engine, entry = model.engine, model.entry
    engine.batch_tokens = entry.batch_tokens
    contestants = {
        "both passes": lambda: engine.clean_and_knockout(samples.sequences, samples.positions, SITES, samples.cuts),
        "answers": lambda: engine.generate(prompts, model.ends, entry.max_new_tokens),
    }
    seconds = interleaved(contestants, size.curve_runs)
    prefill = number * shape.forward_flops(tokens.question, tokens.prefix, head=1)
    decode = expected.answers - prefill
    plan = {
        "both passes": (expected.clean + expected.knockout) / (peak * settings.utilisation),
        "answers": prefill / (peak * settings.utilisation) + decode / (peak * settings.decode_utilisation),
    }
    flops = {"both passes": expected.clean + expected.knockout, "answers": expected.answers}
    for name, taken in seconds.items():
        median = statistics.median(taken)
        yield Row(
            f"The plan, few-shot prompts: {number} samples of {samples.tokens:.0f} tokens",
            f"{name}: time against the plan's prediction",
            [value / plan[name] for value in taken],
            "times",
            "none",
            note=f"Predicted {plan[name]:.2f} s at a peak of {peak / 1e9:.0f} GFLOP/s (a product of two matrices "
            f"here), of which the plan assumes {settings.utilisation:.0%} for whole prompts and "
            f"{settings.decode_utilisation:.0%} for single tokens; measured {median:.2f} s, which is "
            f"{flops[name] / median / peak:.0%} of the peak by the plan's count.",
        )


def peak_flops(size: int = 2048, runs: int = 5) -> float:
    """Return the FLOP/s of a product of two square matrices, the best of some runs."""
    one, other = torch.rand(size, size), torch.rand(size, size)
    best = float("inf")
    for _ in range(runs):
        start = time.perf_counter()
        one @ other
        best = min(best, time.perf_counter() - start)
    return 2 * size**3 / best
