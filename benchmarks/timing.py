"""Timing contestants by turns, and making sure before that they compute the same."""

import time
from collections.abc import Callable, Mapping

import torch


class Disagree(Exception):
    """Two contestants do not give the same numbers, so that their times must not be compared."""


def interleaved(contestants: Mapping[str, Callable[[], object]], runs: int, warm_up: int = 1) -> dict[str, list[float]]:
    """Return the seconds of each contestant's runs.

    They take turns (A, B, A, B, …), so that whatever else the machine does meets all of them, and the ratio of two
    times of one turn means something. ``warm_up`` turns before are not counted.
    """
    seconds: dict[str, list[float]] = {name: [] for name in contestants}
    for turn in range(warm_up + runs):
        for name, run in contestants.items():
            start = time.perf_counter()
            run()
            if turn >= warm_up:
                seconds[name].append(time.perf_counter() - start)
    return seconds


def ratios(seconds: Mapping[str, list[float]], name: str, against: str) -> list[float]:
    """Return, turn by turn, how many times as long ``name`` took as ``against``."""
    return [one / other for one, other in zip(seconds[name], seconds[against], strict=True)]


def difference(one: torch.Tensor, other: torch.Tensor) -> float:
    """Return the largest difference of two tensors of activations, as a share of the activation's length.

    The last dimension is the activation's. NaN counts as infinite.
    """
    length = other.norm(dim=-1).clamp(min=torch.finfo(torch.float32).tiny)
    worst = ((one - other).norm(dim=-1) / length).max().item()
    return worst if worst == worst else float("inf")


def must_agree(results: Mapping[str, Mapping[str, torch.Tensor]], tolerance: float = 1e-4) -> dict[str, float]:
    """Return how far each result is from the first one; raise Disagree beyond ``tolerance``, or at other shapes.

    A result maps names to tensors of activations; differences are shares of the activation's length.
    """
    (reference, expected), *_ = results.items()
    found = {}
    for name, result in results.items():
        shapes = {key: tuple(value.shape) for key, value in result.items()}
        if shapes != {key: tuple(value.shape) for key, value in expected.items()}:
            raise Disagree(f"{name} gives tensors of other shapes than {reference}: {shapes}")
        found[name] = max(difference(result[key].float(), expected[key].float()) for key in expected)
        if not found[name] <= tolerance:
            raise Disagree(
                f"{name} and {reference} differ by {found[name]:.3g} of an activation's length, allowed {tolerance:g}; "
                "no time is compared"
            )
    return found
