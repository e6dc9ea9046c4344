"""What other cuts cost, for the plan."""

from collections.abc import Sequence
from dataclasses import dataclass

from deltap.cost import BYTES, Shape, Tokens
from deltap.settings import InterventionSettings, WindowSettings


@dataclass(frozen=True)
class CutCost:
    """What one intervention costs, all draws of it and all data sets together."""

    name: str
    samples: int
    """Test samples."""
    passes: float
    """For each of them, in passes through all layers of its own tokens behind the shared prefix."""
    flops: float
    bytes: int
    """Activations on disk, in chunks and in shards."""


def cut_costs(
    shape: Shape, tested: Sequence[int], tokens: Tokens, dtype: str, settings: InterventionSettings
) -> list[CutCost]:
    """Return the cost of each intervention for data sets with so many test samples, at most.

    At most, because what depends on the run is taken as its largest: k* as the last layer, and random tokens as filled
    up from template and examples in every sample, whose whole prompt is then computed. A pass through some of the
    layers counts as their share.
    """
    one = shape.forward_flops(tokens.own, tokens.prefix)
    whole = shape.forward_flops(tokens.prefix + tokens.own) / one
    per_place = 2 * shape.hidden * BYTES[dtype]

    def cost(name: str, samples: int, passes: float, places: int) -> CutCost:
        return CutCost(name, samples, passes, samples * passes * one, samples * places * per_place)

    def at_most(samples: int | None) -> int:
        return sum(number if samples is None else min(samples, number) for number in tested)

    found = [cost("clean attention", sum(tested), 1, 0)]
    for name, draws in settings.draws.items():
        passes = draws * (whole if name.startswith("random") else 1)
        found.append(cost(name, sum(tested), passes, draws * shape.layers))
    if windows := settings.windows:
        for width in windows.widths:
            number = max(0, shape.layers - width + 1)
            found.append(
                cost(f"window_{width}", at_most(windows.samples), 1 + _restarted(shape.layers, width, windows), number)
            )
    if heads := settings.heads:
        restarted = sum((shape.layers - layer) / shape.layers for layer in heads.layers if layer < shape.layers)
        places = len(heads.layers) * shape.heads
        found.append(cost("heads", at_most(heads.samples), 1 + shape.heads * restarted, places))
    return found


def _restarted(layers: int, width: int, windows: WindowSettings) -> float:
    """Return how many passes the windows of a width are, each from its first layer to the one that is read."""
    starts = range(layers - width + 1)
    return sum(width if windows.read_at == "end" else layers - start for start in starts) / layers
