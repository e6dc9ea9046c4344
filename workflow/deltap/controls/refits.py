"""The outer bootstrap: how sure the curves are when probes, k* and groups are found anew in every draw.

The bootstrap over samples takes probes, k* and groups as given. Here each draw trains the probes on training samples
drawn with replacement, chooses k* on validation samples drawn with replacement, forms its own groups, and takes the
means over test samples drawn with replacement. Source: Efron & Tibshirani 1993, chapter 17 (the whole procedure is
repeated).
"""

import numpy as np

from deltap.controls.compare import Bootstrap, Curve
from deltap.controls.estimates import Estimates, flips, groups
from deltap.controls.rows import Rows
from deltap.delta_p import delta_p
from deltap.settings import Grouping
from deltap.statistics import Resampled


def refits(estimates: Estimates, bootstrap: Bootstrap, rows: Rows) -> None:
    """Add gap, mean ΔP of both groups and flip rate of the method with the intervals of the outer bootstrap."""
    found = estimates.found.refits
    draws = len(found.clean)
    if not draws:
        return
    method = estimates.method()
    values: list[np.ndarray] = []
    q_anchored: dict[Grouping, list[np.ndarray]] = {grouping: [] for grouping in method.groupings}
    for draw in range(draws):
        clean, cut = found.clean[draw], found.cut[draw]
        values.append(delta_p(clean, cut, estimates.refers_to_truthful(clean)))
        for grouping, member in groups(flips(clean, cut), found.k_star(draw)).items():
            q_anchored[grouping].append(member)
    # Each refit gets as many of the draws of test samples; together they are the draws of the outer bootstrap.
    shares = np.array_split(np.arange(len(bootstrap.counts)), draws)
    for grouping in method.groupings:
        q = np.stack(q_anchored[grouping])
        own = method.q_anchored(grouping)
        means = {
            group: _outer(bootstrap, method.delta_p(), own == inside, np.stack(values), q == inside, shares)
            for group, inside in (("q_anchored", True), ("a_anchored", False))
        }
        rows.curve("refits", "gap", means["q_anchored"] - means["a_anchored"], grouping=grouping)
        for group, curve in means.items():
            rows.curve("refits", "delta_p", curve, grouping=grouping, group=group)
        if grouping == "per_layer":
            everybody = np.ones_like(q)
            rate = _outer(bootstrap, 100.0 * own, np.ones_like(own), 100.0 * q, everybody, shares)
            rows.curve("refits", "flip_rate", rate, grouping=grouping)


def _outer(
    bootstrap: Bootstrap,
    values: np.ndarray,
    member: np.ndarray,
    again: np.ndarray,
    again_member: np.ndarray,
    shares: list[np.ndarray],
) -> Curve:
    """Return the method's mean with the draws of its repetitions (``again``, shape (refits, layers, samples))."""
    inner = bootstrap.mean(values, member)
    draws = np.full_like(inner.resampled.draws, np.nan)
    for refit, chosen in enumerate(shares):
        counts = bootstrap.counts[chosen]
        weight = again_member[refit].astype(float)
        with np.errstate(invalid="ignore", divide="ignore"):
            draws[chosen] = (counts @ (weight * again[refit]).T) / (counts @ weight.T)
    draws[:, ~np.isfinite(inner.resampled.estimate)] = np.nan
    return Curve(Resampled(inner.resampled.estimate, draws), inner.n)
