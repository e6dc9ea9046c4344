"""How often bootstrap intervals and bands hold the truth, by the number of samples in a group.

Run by hand: ``python -m benchmarks.coverage``. Samples of 20 layers that go together (neighbours by 0.9), from normal
distributions and from skewed ones (ΔP of a group is skewed), 500 times each.
"""

import numpy as np

from deltap.settings import BootstrapSettings
from deltap.statistics import percentile_interval, resampling_counts, simultaneous_band

LAYERS, TRIES, LEVEL = 20, 500, 0.95


def main() -> None:
    """Print the shares in percent."""
    print("| n | one layer, normal | skewed | all layers, normal | skewed |\n| ---: | ---: | ---: | ---: | ---: |")
    for n in (10, 30, 100, 300):
        shares = [coverage(n, skewed) for skewed in (False, True)]
        print(f"| {n} |", " | ".join(f"{100 * share[kind]:.0f}%" for kind in (0, 1) for share in shares), "|")


def coverage(n: int, skewed: bool) -> tuple[float, float]:
    """Return how often the interval of one layer holds its mean, and the band the means of all layers."""
    random = np.random.default_rng([n, skewed])
    one, every = [], []
    for number in range(TRIES):
        steps = random.normal(size=(LAYERS, n))
        values = steps.copy()
        for layer in range(1, LAYERS):
            values[layer] = 0.9 * values[layer - 1] + np.sqrt(1 - 0.9**2) * steps[layer]
        values = np.exp(values) - np.exp(0.5) if skewed else values
        counts = resampling_counts(n, BootstrapSettings(draws=1000, seed=number))
        draws = (counts @ values.T) / n
        low, high = percentile_interval(draws, LEVEL)
        one.append((low[0] <= 0) & (high[0] >= 0))
        low, high = simultaneous_band(values.mean(axis=1), draws, LEVEL)
        every.append(((low <= 0) & (high >= 0)).all())
    return float(np.mean(one)), float(np.mean(every))


if __name__ == "__main__":
    main()
