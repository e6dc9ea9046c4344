"""How much the benchmark measures."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Size:
    """Sizes of the rows about inference."""

    samples: int
    """In the one batch of a sweep."""
    runs: int
    """Turns of a sweep."""
    short_runs: int
    """Turns of contestants that differ by a few percent and take a second."""
    curve_runs: int
    """Turns at each point of a curve."""
    curve_samples: tuple[int, ...]
    curve_layers: tuple[int, ...]
    curve_prefix: tuple[int, ...]
    memory: tuple[int, int] = (1000, 4000)
    """Samples of the two jobs whose peak memory is compared."""
    memory_runs: int = 3
    layers: int | None = None
    """The first so many of the model; None for all."""
    prompt_tokens: int | None = None
    """Length of the few-shot prefix, its examples repeated; None for what they are."""


SIZES = {
    "small": Size(
        samples=4,
        runs=3,
        short_runs=15,
        curve_runs=2,
        curve_samples=(2, 4, 8),
        curve_layers=(5, 10, 20),
        curve_prefix=(50, 100, 200, 400),
    ),
    "full": Size(
        samples=32,
        runs=5,
        short_runs=31,
        curve_runs=5,
        curve_samples=(2, 4, 8, 16, 32, 64),
        curve_layers=(5, 10, 15, 20, 25, 30),
        curve_prefix=(50, 100, 200, 400, 800, 1600),
        memory_runs=3,
    ),
}
