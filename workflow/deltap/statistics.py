"""Uncertainty of means: a seeded bootstrap over samples."""

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
    values: np.ndarray, member: np.ndarray, counts: np.ndarray, level: float
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Return n, mean and the ends of the percentile interval of a group's mean, for each layer.

    ``values`` and the boolean ``member`` have the shape (samples, layers); ``counts`` is `resampling_counts` of the
    samples. A draw's mean is taken over the group's members in it; a draw without any says nothing and is left
    out. The mean is NaN where n = 0, the interval where n < 2. Source: Efron & Tibshirani 1993, chapter 13.
    """
    inside = member.astype(float)
    filled = np.where(member, values, 0.0)
    n = member.sum(axis=0)
    with np.errstate(invalid="ignore", divide="ignore"):
        mean = filled.sum(axis=0) / n
        draws = (counts @ filled) / (counts @ inside)  # (draws, layers)
    tail = 100 * (1 - level) / 2
    low, high = np.full(len(n), np.nan), np.full(len(n), np.nan)
    enough = n >= 2
    if enough.any():
        low[enough], high[enough] = np.nanpercentile(draws[:, enough], [tail, 100 - tail], axis=0)
    return n, mean, low, high
