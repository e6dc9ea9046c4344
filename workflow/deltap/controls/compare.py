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

    def __truediv__(self, other: "Curve") -> "Curve":
        """Return the quotient, draw by draw; nothing where it is none."""
        one, two = self.resampled, other.resampled
        with np.errstate(invalid="ignore", divide="ignore"):
            quotients = one.estimate / two.estimate, one.draws / two.draws
        estimate, draws = (np.where(np.isfinite(values), values, np.nan) for values in quotients)
        return Curve(Resampled(estimate, draws), np.minimum(self.n, other.n))

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

    def __init__(self, counts: np.ndarray, min_n: int = 2, seed: int = 0) -> None:
        """``counts``: `resampling_counts`; ``min_n``: a layer has an estimate only with so many samples in the group.

        ``seed``: by which a control's draws are drawn anew.
        """
        self.counts, self.min_n, self.seed = counts, min_n, seed

    @classmethod
    def seeded(cls, samples: int, settings: BootstrapSettings, min_n: int = 2) -> "Bootstrap":
        """Return a resampling of ``samples`` samples."""
        return cls(resampling_counts(samples, settings), min_n, settings.seed)

    def weights(self, draws: int, together: int = 1) -> np.ndarray:
        """Return how often each of a control's draws counts, shape (bootstrap draws, draws).

        Of D draws D - 1 are drawn with replacement and count D / (D - 1) times: with few draws, drawing all D would
        show their variance as (D - 1) / D of what it is. Source: McCarthy & Snowden 1985. ``together``: so many draws,
        one after the other, are drawn as one. A control of one draw is taken as it is: its interval lacks chance among
        draws.
        """
        number = draws // together
        if number == 1:
            return np.ones((len(self.counts), draws))
        generator = np.random.default_rng([self.seed, number])
        drawn = generator.multinomial(number - 1, np.full(number, 1 / number), size=len(self.counts))
        return np.repeat(drawn * number / (number - 1), together, axis=1)

    def mean(self, values: np.ndarray, member: np.ndarray, together: int = 1) -> Curve:
        """Return the mean of ``values`` over the members of a group, all draws of a control pooled.

        Both have the shape (draws, layers, samples); ``member`` holds weights, or whether a sample is in the group, and
        counts nothing where the value is NaN. With s the sum of weight times value and m the sum of weights, over draws
        and samples and each as often as drawn, the mean is s / m. ``together``: see `weights`.
        """
        there = np.isfinite(values)
        weight = np.where(there, member, 0.0).astype(float)
        product = weight * np.where(there, values, 0.0)
        times = self.weights(len(values), together)
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

    def share(self, member: np.ndarray, of: np.ndarray | None = None, together: int = 1) -> Curve:
        """Return the share of members, in percent, among all samples or those ``of``: booleans as in `mean`."""
        whole = np.ones(member.shape, dtype=bool) if of is None else np.broadcast_to(of, member.shape)
        return self.mean(100.0 * member, whole, together)

    def deviation(self, values: np.ndarray, together: int = 1) -> Curve:
        """Return the standard deviation of ``values`` over all samples and draws."""
        everybody = np.ones(values.shape, dtype=bool)
        mean, square = (self.mean(each, everybody, together) for each in (values, values**2))
        estimate, draws = (
            np.sqrt(np.maximum(two - one**2, 0)) for one, two in zip(mean.resampled, square.resampled, strict=True)
        )
        return Curve(Resampled(estimate, draws), mean.n)


def deeper_half(layers: int) -> slice:
    """Return the layers from the middle of the depth on."""
    return slice(layers // 2, layers)
