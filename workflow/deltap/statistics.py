"""Uncertainty of means: a seeded bootstrap over samples."""

from statistics import NormalDist

import numpy as np

from deltap.settings import BootstrapSettings


def resampling_counts(samples: int, settings: BootstrapSettings) -> np.ndarray:
    """Return how often each sample is drawn in each bootstrap draw, shape (draws, samples), float64.

    One such matrix serves all layers, groups and sites of the same samples, so that their intervals go together.
    """
    generator = np.random.default_rng(settings.seed)
    indices = generator.integers(0, samples, size=(settings.draws, samples))
    offsets = np.arange(settings.draws)[:, None] * samples
    return (
        np.bincount((indices + offsets).ravel(), minlength=settings.draws * samples).reshape(-1, samples).astype(float)
    )


def group_mean(
    sums: np.ndarray, times: np.ndarray, counts: np.ndarray, level: float
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Return n, mean and the ends of the percentile interval of a group's mean, for each layer.

    ``sums`` and ``times``, shape (samples, layers), are the sum of a sample's values in the group and how many these
    are: 1 for its members, 0 for others. ``counts`` is `resampling_counts` of the samples. A draw's mean is taken over
    the group's members in it; a draw without any says nothing and is left out. n is the number of members. The mean is
    NaN where n = 0, the interval where n < 2. Source: Efron & Tibshirani 1993, chapter 13.
    """
    times = np.asarray(times, dtype=float)
    filled = np.where(times > 0, sums, 0.0)
    n = (times > 0).sum(axis=0)
    with np.errstate(invalid="ignore", divide="ignore"):
        mean = filled.sum(axis=0) / times.sum(axis=0)
        draws = (counts @ filled) / (counts @ times)  # (draws, layers)
    tail = 100 * (1 - level) / 2
    low, high = np.full(len(n), np.nan), np.full(len(n), np.nan)
    empty = np.isnan(draws).any(axis=0)
    # NumPy takes the layers one by one where a draw may be NaN, which takes far longer.
    for percentile, chosen in ((np.percentile, ~empty), (np.nanpercentile, empty)):
        chosen = chosen & (n >= 2)
        if chosen.any():
            low[chosen], high[chosen] = percentile(draws[:, chosen], [tail, 100 - tail], axis=0)
    return n, mean, low, high


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
