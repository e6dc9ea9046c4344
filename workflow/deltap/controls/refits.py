"""The outer bootstrap: how sure the curves are when probes, k* and groups are found anew in every draw.

The bootstrap over samples takes probes, k* and groups as given. Here each draw trains the probes on training samples
drawn with replacement, chooses k* on validation samples drawn with replacement, forms its own groups, and takes the
means over test samples drawn with replacement. The strength of the probes stays as it was chosen. Source: Efron &
Tibshirani 1993, chapter 17.
"""

import numpy as np

from deltap.controls.compare import Bootstrap, Curve
from deltap.controls.estimates import Estimates, flips, groups
from deltap.controls.rows import Rows
from deltap.statistics import Resampled


def refits(estimates: Estimates, bootstrap: Bootstrap, rows: Rows) -> None:
    """Add gap, mean ΔP of both groups and flip rate: the mean over the refits, with the outer bootstrap's interval.

    The refits' mean, not the method's own estimate, for probes that saw fewer different samples are other ones: the
    distance between the two is that bias.
    """
    found = estimates.found.refits
    draws = len(found.clean)
    if not draws:
        return
    values, grouped = [], []
    for draw, (clean, cut) in enumerate(zip(found.clean, found.cut, strict=True)):
        k_star = found.k_star(draw)
        values.append(estimates.delta_p(clean, cut, k_star))
        grouped.append(groups(flips(clean, cut), k_star))
    for grouping in estimates.plain:
        q = np.stack([each[grouping] for each in grouped])
        means = {
            group: _outer(bootstrap, np.stack(values), member)
            for group, member in (("q_anchored", q), ("a_anchored", ~q))
        }
        rows.curve("refits", "gap", means["q_anchored"] - means["a_anchored"], grouping=grouping)
        for group, curve in means.items():
            rows.curve("refits", "delta_p", curve, grouping=grouping, group=group)
        if grouping == "per_layer":
            rows.curve("refits", "flip_rate", _outer(bootstrap, 100.0 * q, np.ones_like(q)), grouping=grouping)


def _outer(bootstrap: Bootstrap, values: np.ndarray, member: np.ndarray) -> Curve:
    """Return the mean over refits; ``values`` and ``member`` have the shape (refits, layers, samples).

    Each refit gets as many of the draws of test samples; together they are the draws of the outer bootstrap.
    """
    whole = bootstrap.mean(values, member)
    draws = np.full_like(whole.resampled.draws, np.nan)
    for refit, chosen in enumerate(np.array_split(np.arange(len(draws)), len(values))):
        counts, weight = bootstrap.counts[chosen], member[refit].astype(float)
        with np.errstate(invalid="ignore", divide="ignore"):
            draws[chosen] = (counts @ (weight * values[refit]).T) / (counts @ weight.T)
    draws[:, ~np.isfinite(whole.resampled.estimate)] = np.nan
    return Curve(Resampled(whole.resampled.estimate, draws), whole.n)
