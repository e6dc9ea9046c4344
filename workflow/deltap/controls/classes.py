"""Class: Q-Anchored samples are mostly those that the probe calls truthful. How much of the gap is that?"""

from typing import Any

import numpy as np

from deltap.controls.compare import Bootstrap, Curve
from deltap.controls.estimates import Estimates
from deltap.controls.rows import Rows
from deltap.settings import ANCHORS
from deltap.statistics import Resampled


def classes(estimates: Estimates, bootstrap: Bootstrap, rows: Rows) -> None:
    """Add, over the deeper half of the layers unless a curve is said:

    - ``share``: the percentage of each group that the probe calls truthful, and that is labelled so;
    - ``flip_rate``, ``delta_p`` and ``gap`` within each predicted class;
    - ``gap`` of the group ``reweighted``, a curve: `reweighted_gap`; ``covered``: the share of samples in its classes.
    """
    method, clean = estimates.method(), estimates.found.clean
    values = method.delta_p()
    says_truthful = (clean >= 0.5)[None]
    is_truthful = np.broadcast_to(estimates.measured.truthful["test"], says_truthful.shape)
    predicted = {"predicted truthful": says_truthful, "predicted hallucinated": ~says_truthful}
    for grouping in method.groupings:
        q = method.q_anchored(grouping)
        keys: dict[str, Any] = {"grouping": grouping}
        of_group = dict(zip(ANCHORS, (q, ~q), strict=True))
        for anchor, member in of_group.items():
            for name, truthful in (("predicted", says_truthful), ("labelled", is_truthful)):
                share = bootstrap.share(truthful, of=member)
                rows.mean("class", "share", share, group=f"{anchor}, {name} truthful", **keys)
        gaps, shares = [], []
        for name, inside in predicted.items():
            within = {anchor: bootstrap.mean(values, member & inside) for anchor, member in of_group.items()}
            for anchor, curve in within.items():
                rows.mean("class", "delta_p", curve, group=f"{anchor}, {name}", **keys)
            gaps.append(within["q_anchored"] - within["a_anchored"])
            shares.append(bootstrap.share(inside))
            rows.mean("class", "gap", gaps[-1], group=name, **keys)
            if grouping == "per_layer":
                rows.mean("class", "flip_rate", bootstrap.share(q, of=inside), group=name, **keys)
        rows.curve("class", "gap", reweighted_gap(gaps, shares), group="reweighted", **keys)
        present = np.stack([np.isfinite(gap.resampled.estimate) for gap in gaps])
        covered = np.where(present, np.stack([share.resampled.estimate for share in shares]), 0).sum(axis=0)
        deep = slice(len(covered) // 2, None)
        rows.add("class", "covered", float(np.mean(covered[deep])), **keys)


def reweighted_gap(gaps: list[Curve], shares: list[Curve]) -> Curve:
    """Return the gap between the groups when both have the class mix of all test samples.

    With the gap g_c within class c and the share π_c of all samples in it, Σ π_c g_c / Σ π_c over the classes in which
    both groups have enough samples. If the groups differ in class alone, every g_c and so the result is zero. Source:
    direct standardisation, as in Rothman et al. 2008, "Modern Epidemiology", chapter 3.
    """
    there = np.stack([np.isfinite(gap.resampled.estimate) for gap in gaps])  # (classes, layers)

    def mixed(gap: np.ndarray, share: np.ndarray, present: np.ndarray) -> np.ndarray:
        weight = np.where(present, share, 0)
        with np.errstate(invalid="ignore", divide="ignore"):
            return (weight * np.where(present, gap, 0)).sum(axis=0) / weight.sum(axis=0)

    estimate = mixed(
        np.stack([gap.resampled.estimate for gap in gaps]), np.stack([s.resampled.estimate for s in shares]), there
    )
    draws = mixed(
        np.stack([gap.resampled.draws for gap in gaps]),
        np.stack([share.resampled.draws for share in shares]),
        there[:, None],
    )
    n = np.where(there, np.stack([gap.n for gap in gaps]), 0).sum(axis=0)
    return Curve(Resampled(estimate, draws), n)
