"""The method's curves beside those of each control, and their differences on the same samples."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from deltap.controls.compare import Bootstrap, Curve
from deltap.controls.estimates import Estimated
from deltap.controls.rows import Rows
from deltap.settings import SAME_GROUPS, Grouping


@dataclass(frozen=True)
class Curves:
    """What is looked at of one estimate and grouping."""

    q_anchored: Curve
    """Mean ΔP of the group, as the next ones."""
    a_anchored: Curve
    everybody: Curve
    """Mean ΔP of all samples: no group, and so no selection, is in it."""
    gap: Curve
    """q_anchored less a_anchored."""
    standardised_gap: Curve
    """The gap in standard deviations of ΔP over all samples: of probes that decide near 0.5 and of probes that are
    sure of themselves alike."""
    flip_rate: Curve
    """Share of samples in q_anchored, percent."""


def curves(estimated: Estimated, grouping: Grouping, bootstrap: Bootstrap) -> Curves:
    """Return the curves of an estimate, all its draws pooled."""
    values, q, together = estimated.delta_p(), estimated.q_anchored(grouping), estimated.together
    there = np.isfinite(values)
    q_curve, a_curve = (bootstrap.mean(values, member & there, together) for member in (q, ~q))
    gap = q_curve - a_curve
    return Curves(
        q_curve,
        a_curve,
        bootstrap.mean(values, there, together),
        gap,
        gap / bootstrap.deviation(values, together),
        bootstrap.share(q & there, there, together),
    )


def compare(method: Estimated, controls: Sequence[Estimated], bootstrap: Bootstrap, rows: Rows) -> None:
    """Add the curves of the method and of every control, and what the method has more than each.

    An estimator that forms groups elsewhere is compared to the method, and the same estimator of another cut or of
    permuted labels to that estimator (`Estimated.compared_to`).
    """
    by_name = {each.name: each for each in (method, *controls)}
    found = {
        (name, grouping): curves(each, grouping, bootstrap)
        for name, each in by_name.items()
        for grouping in each.groupings
    }
    for (name, grouping), of_control in found.items():
        control = by_name[name]
        _add(rows, control, grouping, of_control)
        other = found.get((control.compared_to, grouping))
        if control is not method and other:
            _add_differences(rows, control, grouping, other, of_control)


def _add(rows: Rows, estimated: Estimated, grouping: Grouping, found: Curves) -> None:
    keys = {"grouping": grouping}
    rows.curve(estimated.name, "gap", found.gap, **keys)
    rows.curve(estimated.name, "standardised_gap", found.standardised_gap, **keys)
    rows.curve(estimated.name, "delta_p", found.q_anchored, group="q_anchored", **keys)
    rows.curve(estimated.name, "delta_p", found.a_anchored, group="a_anchored", **keys)
    if grouping == "per_layer":
        rows.curve(estimated.name, "delta_p", found.everybody)
        if estimated.estimate != SAME_GROUPS:
            rows.curve(estimated.name, "flip_rate", found.flip_rate, **keys)


def _add_differences(rows: Rows, control: Estimated, grouping: Grouping, own: Curves, found: Curves) -> None:
    keys = {"grouping": grouping}
    name = control.name
    rows.difference(name, "gap_difference", own.gap - found.gap, **keys)
    rows.difference(name, "standardised_gap_difference", own.standardised_gap - found.standardised_gap, **keys)
    rows.difference(name, "delta_p_difference", own.q_anchored - found.q_anchored, group="q_anchored", **keys)
    rows.difference(name, "delta_p_difference", own.a_anchored - found.a_anchored, group="a_anchored", **keys)
    if grouping == "per_layer":
        rows.difference(name, "delta_p_difference", own.everybody - found.everybody)
        if control.estimate != SAME_GROUPS:
            rows.difference(name, "flip_rate_difference", own.flip_rate - found.flip_rate, **keys)
