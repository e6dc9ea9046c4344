"""The method's curves beside those of each control, and their differences on the same samples."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from deltap.controls.compare import Bootstrap, Curve
from deltap.controls.estimates import Estimated
from deltap.controls.rows import Rows
from deltap.settings import Grouping


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
    flip_rate: Curve
    """Share of samples in q_anchored, percent."""


def curves(estimated: Estimated, grouping: Grouping, bootstrap: Bootstrap) -> Curves:
    """Return the curves of an estimate, all its draws pooled."""
    values, q = estimated.delta_p(), estimated.q_anchored(grouping)
    there = np.isfinite(values)
    redraw = estimated.estimate != "cross_fitted"  # there are no more halves than two
    q_curve, a_curve = (bootstrap.mean(values, member & there, redraw) for member in (q, ~q))
    return Curves(
        q_curve,
        a_curve,
        bootstrap.mean(values, there, redraw),
        q_curve - a_curve,
        bootstrap.share(q & there, there, redraw),
    )


def compare(method: Estimated, controls: Sequence[Estimated], bootstrap: Bootstrap, rows: Rows) -> None:
    """Add the curves of the method and of every control, and what the method has more than each."""
    own = {grouping: curves(method, grouping, bootstrap) for grouping in method.groupings}
    for grouping, of_method in own.items():
        _add(rows, method, grouping, of_method)
    for control in controls:
        for grouping in control.groupings:
            of_control = curves(control, grouping, bootstrap)
            _add(rows, control, grouping, of_control)
            _add_differences(rows, control, grouping, own[grouping], of_control)


def _add(rows: Rows, estimated: Estimated, grouping: Grouping, found: Curves) -> None:
    keys = {"grouping": grouping}
    rows.curve(estimated.name, "gap", found.gap, **keys)
    rows.curve(estimated.name, "delta_p", found.q_anchored, group="q_anchored", **keys)
    rows.curve(estimated.name, "delta_p", found.a_anchored, group="a_anchored", **keys)
    if grouping == "per_layer":
        rows.curve(estimated.name, "delta_p", found.everybody)
        if estimated.estimate != "same_groups":
            rows.curve(estimated.name, "flip_rate", found.flip_rate, **keys)


def _add_differences(rows: Rows, control: Estimated, grouping: Grouping, method: Curves, found: Curves) -> None:
    keys = {"grouping": grouping}
    rows.difference(control.name, "gap_difference", method.gap - found.gap, **keys)
    rows.difference(
        control.name, "delta_p_difference", method.q_anchored - found.q_anchored, group="q_anchored", **keys
    )
    rows.difference(
        control.name, "delta_p_difference", method.a_anchored - found.a_anchored, group="a_anchored", **keys
    )
    if grouping == "per_layer":
        rows.difference(control.name, "delta_p_difference", method.everybody - found.everybody)
        if control.estimate != "same_groups":
            rows.difference(control.name, "flip_rate_difference", method.flip_rate - found.flip_rate, **keys)
