"""Class: Q-Anchored samples are mostly those that the probe calls truthful. How much of the gap is that?"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from deltap.controls.compare import Bootstrap, Curve, deeper_half
from deltap.controls.estimates import Estimated
from deltap.controls.rows import Rows
from deltap.settings import ANCHORS, Grouping
from deltap.statistics import Resampled


def classes(
    method: Estimated, controls: Sequence[Estimated], truthful: np.ndarray, bootstrap: Bootstrap, rows: Rows
) -> None:
    """Add, over the deeper half of the layers unless a curve is said:

    - ``share``: the percentage of each group that the probe calls truthful, and that is labelled so (``truthful``,
      boolean, of the test samples);
    - ``flip_rate``, ``delta_p`` and ``gap`` within each predicted class;
    - ``gap`` of the group ``reweighted``, a curve: `reweighted_gap`; ``covered``: the share of samples in its classes;
    - of each of ``controls`` the same ``gap``, and ``gap_difference``: the method's less it, over the classes that both
      have, which hold ``covered`` percent (control ``<name> class``).
    """
    values = method.delta_p()
    is_truthful = np.broadcast_to(truthful, values.shape)
    for grouping in method.groupings:
        q = method.q_anchored(grouping)
        keys: dict[str, Any] = {"grouping": grouping}
        of_group = dict(zip(ANCHORS, (q, ~q), strict=True))
        for anchor, member in of_group.items():
            for name, labelled in (("predicted", says_truthful(method)), ("labelled", is_truthful)):
                share = bootstrap.share(labelled, of=member)
                rows.mean("class", "share", share, group=f"{anchor}, {name} truthful", **keys)
        for name, inside in _by_class(method).items():
            within = {anchor: bootstrap.mean(values, member & inside) for anchor, member in of_group.items()}
            for anchor, curve in within.items():
                rows.mean("class", "delta_p", curve, group=f"{anchor}, {name}", **keys)
            rows.mean("class", "gap", within["q_anchored"] - within["a_anchored"], group=name, **keys)
            if grouping == "per_layer":
                rows.mean("class", "flip_rate", bootstrap.share(q, of=inside), group=name, **keys)
        ours = within_classes(method, grouping, bootstrap)
        reweighted, covered = reweighted_gap(*ours)
        rows.curve("class", "gap", reweighted, group="reweighted", **keys)
        rows.add("class", "covered", float(np.mean(covered[deeper_half(len(covered))])), **keys)
        for control in controls:
            theirs = within_classes(control, grouping, bootstrap)
            name = f"{control.name} class"
            rows.curve(name, "gap", reweighted_gap(*theirs)[0], group="reweighted", **keys)
            difference, both = reweighted_difference(*ours, *theirs)
            rows.difference(name, "gap_difference", difference, group="reweighted", **keys)
            rows.add(name, "covered", float(np.mean(both[deeper_half(len(both))])), **keys)


def says_truthful(estimated: Estimated) -> np.ndarray:
    """Tell where the probe calls a clean sample truthful, shape (draws, layers, samples)."""
    return np.stack([draw.clean >= 0.5 for draw in estimated.draws])


def _by_class(estimated: Estimated) -> dict[str, np.ndarray]:
    says = says_truthful(estimated)
    return {"predicted truthful": says, "predicted hallucinated": ~says}


def within_classes(estimated: Estimated, grouping: Grouping, bootstrap: Bootstrap) -> tuple[list[Curve], list[Curve]]:
    """Return the gap within each predicted class, and the share of samples in it."""
    values, q = estimated.delta_p(), estimated.q_anchored(grouping)
    classes = _by_class(estimated).values()
    gaps = [bootstrap.mean(values, q & inside) - bootstrap.mean(values, ~q & inside) for inside in classes]
    return gaps, [bootstrap.share(inside) for inside in classes]


def reweighted_difference(
    gaps: list[Curve], shares: list[Curve], other_gaps: list[Curve], other_shares: list[Curve]
) -> tuple[Curve, np.ndarray]:
    """Return the difference of two reweighted gaps over the classes that both have, and the share it covers.

    Each gap over classes of its own would differ by what the classes differ in, too.
    """
    both = _there(gaps) & _there(other_gaps)
    one, covered = reweighted_gap(gaps, shares, both)
    other, _ = reweighted_gap(other_gaps, other_shares, both)
    return one - other, covered


def _there(gaps: list[Curve]) -> np.ndarray:
    """Tell in which classes there is a gap, shape (classes, layers)."""
    return np.stack([np.isfinite(gap.resampled.estimate) for gap in gaps])


def reweighted_gap(gaps: list[Curve], shares: list[Curve], of: np.ndarray | None = None) -> tuple[Curve, np.ndarray]:
    """Return the gap between the groups when both have the class mix of all test samples, and the share it covers.

    With the gap g_c within class c and the share π_c of all samples in it, Σ π_c g_c / Σ π_c over the classes in which
    both groups have enough samples (or the classes ``of``, shape (classes, layers)), which hold ``covered`` percent of
    all, shape (layers,). If the groups differ in class alone, every g_c and so the result is zero. Source: direct
    standardisation, as in Rothman et al. 2008, "Modern Epidemiology", chapter 3.
    """
    there = _there(gaps) if of is None else of

    def mixed(gap: np.ndarray, share: np.ndarray, present: np.ndarray) -> np.ndarray:
        weight = np.where(present, share, 0)
        with np.errstate(invalid="ignore", divide="ignore"):
            return (weight * np.where(present, gap, 0)).sum(axis=0) / weight.sum(axis=0)

    of_shares = np.stack([share.resampled.estimate for share in shares])
    estimate = mixed(np.stack([gap.resampled.estimate for gap in gaps]), of_shares, there)
    draws = mixed(
        np.stack([gap.resampled.draws for gap in gaps]),
        np.stack([share.resampled.draws for share in shares]),
        there[:, None],
    )
    n = np.where(there, np.stack([gap.n for gap in gaps]), 0).sum(axis=0)
    return Curve(Resampled(estimate, draws), n), np.where(there, of_shares, 0).sum(axis=0)
