"""Uncertainty of means: a seeded bootstrap over samples, for one layer and for many at once."""

from statistics import NormalDist
from typing import NamedTuple

import numpy as np

from deltap.settings import BootstrapSettings, OverLayers


class Resampled(NamedTuple):
    """An estimate, of any shape, and the same in every bootstrap draw; NaN where there is none."""

    estimate: np.ndarray
    draws: np.ndarray
    """Shape (draws, …)."""


def resampling_counts(samples: int, settings: BootstrapSettings) -> np.ndarray:
    """Return how often each sample is drawn in each bootstrap draw, shape (draws, samples), float64.

    One such matrix serves all layers, groups and sites of the same samples, so that their intervals go together.
    """
    generator = np.random.default_rng(settings.seed)
    counts = np.empty((settings.draws, samples))
    for draw in counts:  # one by one, since the indices of all take as much memory as the counts
        draw[:] = np.bincount(generator.integers(0, samples, size=samples), minlength=samples)
    return counts


def group_mean(
    sums: np.ndarray, times: np.ndarray, counts: np.ndarray, level: float, over_layers: OverLayers = "pointwise"
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Return n, mean and the ends of the interval of a group's mean, for each layer.

    ``sums`` and ``times``, shape (samples, layers), are the sum of a sample's values in the group and how many these
    are: 1 for its members, 0 for others. ``counts`` is `resampling_counts` of the samples. A draw's mean is taken over
    the group's members in it; a draw without any says nothing and is left out. n is the number of members. The mean is
    NaN where n = 0, the interval where n < 2. ``pointwise``: `percentile_interval` of each layer; ``simultaneous``:
    `simultaneous_band` of all.
    """
    times = np.asarray(times, dtype=float)
    filled = np.where(times > 0, sums, 0.0)
    n = (times > 0).sum(axis=0)
    with np.errstate(invalid="ignore", divide="ignore"):
        mean = filled.sum(axis=0) / times.sum(axis=0)
        draws = (counts @ filled) / (counts @ times)  # (draws, layers)
    few = n < 2
    if over_layers == "pointwise":
        draws[:, few] = np.nan
        return n, mean, *percentile_interval(draws, level)
    return n, mean, *simultaneous_band(np.where(few, np.nan, mean), draws, level)


def percentile_interval(draws: np.ndarray, level: float) -> tuple[np.ndarray, np.ndarray]:
    """Return the ends of the percentile interval of bootstrap draws, shape (draws, …): two arrays of shape (…).

    Draws that are NaN are left out; where all are, so are the ends. Source: Efron & Tibshirani 1993, chapter 13.
    """
    shape, draws = draws.shape[1:], draws.reshape(len(draws), -1)
    tail = 100 * (1 - level) / 2
    low, high = np.full(draws.shape[1], np.nan), np.full(draws.shape[1], np.nan)
    missing = np.isnan(draws)
    complete, partial = ~missing.any(axis=0), missing.any(axis=0) & ~missing.all(axis=0)
    # NumPy takes the columns one by one where a draw may be NaN, which takes far longer.
    for percentile, chosen in ((np.percentile, complete), (np.nanpercentile, partial)):
        if chosen.any():
            low[chosen], high[chosen] = percentile(draws[:, chosen], [tail, 100 - tail], axis=0)
    return low.reshape(shape), high.reshape(shape)


def simultaneous_band(estimate: np.ndarray, draws: np.ndarray, level: float) -> tuple[np.ndarray, np.ndarray]:
    """Return the ends of a band that covers the curve at every layer at once with probability ``level``.

    estimate_k ± c · s_k with s_k the standard deviation of layer k's draws and c the ``level`` quantile over draws of
    max_k |draw_k - estimate_k| / s_k (sup-t). ``estimate`` has the shape (layers,), ``draws`` (draws, layers). A layer
    whose estimate is NaN, or has fewer than two draws, is left out; its ends are NaN. A layer whose draws are all the
    same has a band of no width. Source: Montiel Olea & Plagborg-Møller 2019, with bootstrap draws. With few
    samples it is too narrow (docs/controls.md).
    """
    scale, largest = _studentised(estimate, draws)
    half = scale * (np.quantile(largest, level) if len(largest) else 0.0)
    return estimate - half, estimate + half


def max_t(estimate: np.ndarray, draws: np.ndarray) -> np.ndarray:
    """Return each layer's p-value of "the estimate is zero", corrected for the number of layers; shape (layers,).

    p_k = (1 + #{draws: max_j |draw_j - estimate_j| / s_j ≥ |estimate_k| / s_k}) / (1 + draws), two-sided, with the
    shapes of `simultaneous_band`, whose band excludes zero where p is below 1 - level. The draws around their estimate
    stand for the distribution without a difference. NaN where there is no estimate; 1 where estimate and draws are all
    zero. Sources: Westfall & Young 1993 (single-step maxT); 1 + …: Davison & Hinkley 1997, chapter 4.
    """
    scale, largest = _studentised(estimate, draws)
    with np.errstate(invalid="ignore", divide="ignore"):
        statistic = np.where(estimate == 0, 0.0, np.abs(estimate) / scale)
    if not len(largest):  # no layer varies
        return np.where(np.isnan(scale), np.nan, np.where(statistic > 0, 1 / (1 + len(draws)), 1.0))
    reached = len(largest) - np.searchsorted(np.sort(largest), statistic)
    return np.where(np.isnan(scale), np.nan, (1 + reached) / (1 + len(largest)))


def _studentised(estimate: np.ndarray, draws: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the standard deviation of each layer's draws and, for each draw, the largest studentised deviation.

    Shapes (layers,), NaN where a layer is left out, and (draws,), empty where no layer varies.
    """
    usable = np.isfinite(estimate) & (np.isfinite(draws).sum(axis=0) >= 2)
    scale = np.full(len(estimate), np.nan)
    if usable.any():
        scale[usable] = np.nanstd(draws[:, usable], axis=0, ddof=1)
    # Rounding alone makes equal draws differ a little.
    scale[scale <= 1e-12 * np.maximum(1, np.abs(estimate))] = 0.0
    varies = scale > 0
    if not varies.any():
        return scale, np.empty(0)
    deviation = np.abs(draws[:, varies] - estimate[varies]) / scale[varies]
    return scale, np.nanmax(deviation[np.isfinite(deviation).any(axis=1)], axis=1)


def holm(p: np.ndarray) -> np.ndarray:
    """Return p-values of a few comparisons corrected for their number, by Holm's (1979) step-down; NaN stays NaN.

    The i-th smallest of m (i = 0 …) becomes the largest of (m - j) · p_j over j ≤ i, at most 1. Any dependence.
    """
    p = np.asarray(p, dtype=float)
    order = np.argsort(p)[: np.isfinite(p).sum()]
    corrected = np.full(p.shape, np.nan)
    corrected[order] = np.minimum(1, np.maximum.accumulate((len(order) - np.arange(len(order))) * p[order]))
    return corrected


def null_share(value: float, null: np.ndarray) -> float:
    """Return the p-value (1 + #{null ≥ value}) / (1 + draws) of a statistic against its draws under chance.

    One-sided: large values speak against chance. With few draws it cannot be small: five give 1/6 at least. NaN where
    ``value`` is; draws that are NaN are left out. Source: Davison & Hinkley 1997, chapter 4.
    """
    null = np.asarray(null, dtype=float)
    null = null[np.isfinite(null)]
    return float((1 + (null >= value).sum()) / (1 + len(null))) if np.isfinite(value) else np.nan


def share_interval(hits: np.ndarray, n: np.ndarray, level: float) -> tuple[np.ndarray, np.ndarray]:
    """Return the ends of the interval of a share ``hits / n``, 0 … 1; NaN where n = 0.

    Source: Wilson 1927, without correction for continuity.
    """
    z = NormalDist().inv_cdf((1 + level) / 2)
    with np.errstate(invalid="ignore", divide="ignore"):
        share = np.asarray(hits, float) / n
        centre = share + z**2 / (2 * n)
        half = z * np.sqrt(share * (1 - share) / n + z**2 / (4 * n**2))
        low, high = (centre - half) / (1 + z**2 / n), (centre + half) / (1 + z**2 / n)
    return np.clip(low, 0, 1), np.clip(high, 0, 1)


def auroc_interval(
    auroc: np.ndarray, positives: np.ndarray, negatives: np.ndarray, level: float
) -> tuple[np.ndarray, np.ndarray]:
    """Return the ends of the interval of an AUROC, 0 … 1, from the numbers of both classes; NaN where one has none.

    Source: Hanley & McNeil 1982, by the normal distribution.
    """
    q1, q2 = auroc / (2 - auroc), 2 * auroc**2 / (1 + auroc)
    with np.errstate(invalid="ignore", divide="ignore"):
        variance = (auroc * (1 - auroc) + (positives - 1) * (q1 - auroc**2) + (negatives - 1) * (q2 - auroc**2)) / (
            positives * negatives
        )
    half = NormalDist().inv_cdf((1 + level) / 2) * np.sqrt(np.maximum(variance, 0))
    return np.clip(auroc - half, 0, 1), np.clip(auroc + half, 0, 1)
