"""Curves of groups with every bootstrap draw, so that what differs between two estimates has an interval.

The method and a control are compared on the same samples in the same bootstrap draws; where a control has several draws
of its own these are drawn anew too. So the interval of a difference holds chance among samples and among draws.
"""

from dataclasses import dataclass

import numpy as np

from deltap.settings import BootstrapSettings
from deltap.statistics import Resampled, max_t, percentile_interval, resampling_counts, simultaneous_band


@dataclass(frozen=True)
class Curve:
    """A statistic over the layers: the estimate, its bootstrap draws, and how many samples it is of."""

    resampled: Resampled
    """Estimate of shape (layers,), draws of shape (bootstrap draws, layers); NaN where there are too few samples."""
    n: np.ndarray
    """Shape (layers,); of several draws of a control the mean, rounded."""

    def __sub__(self, other: "Curve") -> "Curve":
        """Return the difference, draw by draw; it is of as many samples as the smaller has."""
        one, two = self.resampled, other.resampled
        return Curve(Resampled(one.estimate - two.estimate, one.draws - two.draws), np.minimum(self.n, other.n))

    def over(self, layers: slice) -> "Curve":
        """Return the mean over ``layers`` that have an estimate, as a curve of one point."""
        there = np.isfinite(self.resampled.estimate[layers])
        if not there.any():
            nothing = np.full((len(self.resampled.draws), 1), np.nan)
            return Curve(Resampled(nothing[0], nothing), np.zeros(1, dtype=int))
        chosen = self.resampled.draws[:, layers][:, there]
        return Curve(
            Resampled(self.resampled.estimate[layers][there].mean(keepdims=True), _mean(chosen)[:, None]),
            np.array([int(np.median(self.n[layers][there]))]),
        )

    def interval(self, level: float) -> tuple[np.ndarray, np.ndarray]:
        """Return the ends of the percentile interval of each layer."""
        low, high = percentile_interval(self.resampled.draws, level)
        none = ~np.isfinite(self.resampled.estimate)
        return np.where(none, np.nan, low), np.where(none, np.nan, high)

    def band(self, level: float) -> tuple[np.ndarray, np.ndarray]:
        """Return the ends of the band that covers all layers at once."""
        return simultaneous_band(*self.resampled, level)

    def p(self) -> np.ndarray:
        """Return each layer's p-value of "it is zero", corrected for the number of layers."""
        return max_t(*self.resampled)


def _mean(draws: np.ndarray) -> np.ndarray:
    """Return the mean over layers of each draw, of those that it has; NaN where it has none."""
    there = np.isfinite(draws)
    with np.errstate(invalid="ignore"):
        return np.where(there, draws, 0).sum(axis=1) / there.sum(axis=1)


class Bootstrap:
    """One resampling of the samples, which serves every estimate of a series."""

    def __init__(self, samples: int, settings: BootstrapSettings, min_n: int = 2) -> None:
        """``min_n``: a layer has an estimate only with so many samples in the group."""
        self.settings, self.min_n = settings, min_n
        self.counts = resampling_counts(samples, settings)

    def weights(self, draws: int) -> np.ndarray:
        """Return how often each of a control's draws is drawn, shape (bootstrap draws, draws)."""
        if draws == 1:
            return np.ones((len(self.counts), 1))
        generator = np.random.default_rng([self.settings.seed, draws])
        return generator.multinomial(draws, np.full(draws, 1 / draws), size=len(self.counts)).astype(float)

    def mean(self, values: np.ndarray, member: np.ndarray, redraw: bool = True) -> Curve:
        """Return the mean of ``values`` over the members of a group, all draws of a control pooled.

        Both have the shape (draws, layers, samples); ``member`` holds weights, or whether a sample is in the group, and
        counts nothing where the value is NaN. With s the sum of weight times value and m the sum of weights, over draws
        and samples and each as often as drawn, the mean is s / m. ``redraw``: draws of a control are drawn anew too;
        not where there are no more than these, such as two halves.
        """
        there = np.isfinite(values)
        weight = np.where(there, member, 0.0).astype(float)
        product = weight * np.where(there, values, 0.0)
        times = self.weights(len(values)) if redraw else np.ones((len(self.counts), len(values)))
        sums, weights = np.zeros((len(self.counts), values.shape[1])), np.zeros((len(self.counts), values.shape[1]))
        for draw in range(len(values)):
            sums += times[:, draw, None] * (self.counts @ product[draw].T)
            weights += times[:, draw, None] * (self.counts @ weight[draw].T)
        n = (weight > 0).sum(axis=2).mean(axis=0)
        with np.errstate(invalid="ignore", divide="ignore"):
            estimate, draws = product.sum(axis=(0, 2)) / weight.sum(axis=(0, 2)), sums / weights
        few = n < self.min_n
        estimate[few], draws[:, few] = np.nan, np.nan
        return Curve(Resampled(estimate, draws), np.rint(n).astype(int))

    def share(self, member: np.ndarray, of: np.ndarray | None = None, redraw: bool = True) -> Curve:
        """Return the share of members, in percent, among all samples or those ``of``: booleans as in `mean`."""
        whole = np.ones(member.shape, dtype=bool) if of is None else np.broadcast_to(of, member.shape)
        return self.mean(100.0 * member, whole, redraw)


def deeper_half(layers: int) -> slice:
    """Return the layers from the middle of the depth on."""
    return slice(layers // 2, layers)
