"""What a sceptical reader asks of the gap, and what answers it.

Every answer compares the method with another cut that went through the same estimator by the same probes, so that
selection is in both. That each says yes to an effect and not to chance is tested on a model of the effect
(tests/unit/test_controls_questions.py).
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from deltap import markdown
from deltap.controls.lookup import Row, Series, Statistics

YES, NO, CANNOT_TELL = "yes", "no", "cannot tell"

CHANCE = {
    "random_tokens": "random tokens cut",
    "random_mass": "as much attention cut elsewhere",
    "noise": "noise instead of the cut",
    "permuted_labels": "permuted labels",
}
"""What gives a gap without an effect, put through each estimator."""


@dataclass(frozen=True)
class Estimator:
    """A way to estimate the gap, and where its rows are: of the method, and of what gives a gap without an effect."""

    words: str
    grouping: str
    own: str
    """The control's name of the method."""
    of: str
    """Of another cut, or of permuted labels; ``{}`` is which."""
    statistic: str = "gap"
    group: str | None = None
    labels: str | None = None
    """Of permuted labels, where ``of`` does not hold for them."""

    def name(self, chance: str) -> str:
        """Return the control's name where ``chance`` takes the place of the effect."""
        return (self.labels if self.labels and chance == "permuted_labels" else self.of).format(chance)

    def method(self, statistics: Statistics) -> Row | None:
        """Return the method's own."""
        return statistics.mean(self.own, self.statistic, grouping=self.grouping, group=self.group)

    def by(self, chance: str, statistics: Statistics) -> Row | None:
        """Return what ``chance`` gives."""
        return statistics.mean(self.name(chance), self.statistic, grouping=self.grouping, group=self.group)

    def more_than(self, chance: str, statistics: Statistics) -> Row | None:
        """Return the method's less that."""
        statistic = f"{self.statistic}_difference"
        return statistics.mean(self.name(chance), statistic, grouping=self.grouping, group=self.group)

    def layers(self, chance: str, statistics: Statistics) -> pd.DataFrame:
        """Return the same layer by layer."""
        statistic = f"{self.statistic}_difference"
        return statistics.layers(self.name(chance), statistic, grouping=self.grouping, group=self.group)


_CROSSED = {"own": "cross_fitted", "of": "{} cross_fitted", "labels": "{}_cross_fitted"}
PER_LAYER = Estimator("own flips, per layer", "per_layer", "exact_question", "{}")
REFERENCE = Estimator("own flips, at k*", "reference", "exact_question", "{}")
STANDARDISED = replace(REFERENCE, words="own flips, at k*, in standard deviations of ΔP", statistic="standardised_gap")
CROSSED = Estimator("cross-fitted, at k*", "reference", **_CROSSED)
FARTHER = Estimator(
    "groups of farther layers", "reference", "leave_layers_out", "{} leave_layers_out", labels="{}_leave_layers_out"
)
CLASS = Estimator("one class mix, at k*", "reference", "class", "{} class", group="reweighted")
ESTIMATORS = (
    PER_LAYER,
    Estimator("cross-fitted, per layer", "per_layer", **_CROSSED),
    Estimator("one class mix, per layer", "per_layer", "class", "{} class", group="reweighted"),
    REFERENCE,
    STANDARDISED,
    CROSSED,
    FARTHER,
    CLASS,
)


@dataclass(frozen=True)
class Question:
    """One thing that a sceptical reader asks, and what answers it: negative, if the effect is real."""

    asks: str
    statistic: Callable[[Statistics], Row | None]
    layers: Callable[[Statistics], pd.DataFrame]


def questions(series: Series) -> list[Question]:
    """Return what can be asked of the controls that were computed; nothing without another cut.

    Permuted labels and noise are no such comparison: probes that learnt nothing are moved otherwise than those that are
    sure of themselves, and noise is not as large as what a cut disturbs. Without any effect the method's gap differs
    from theirs.
    """
    cuts = {"random_tokens": "cutting as many other tokens", "random_mass": "cutting as much attention elsewhere"}
    found = []
    for name, than in cuts.items():
        if any(len(each.rows(name)) for each in series.values()):
            found.append(
                Question(
                    f"more than {than}: ΔP of all samples",
                    lambda s, name=name: s.mean(name, "delta_p_difference", grouping=None),  # type: ignore[misc]
                    lambda s, name=name: s.layers(name, "delta_p_difference", grouping=None),  # type: ignore[misc]
                )
            )
            found += [_question(than, estimator, name) for estimator in (REFERENCE, CROSSED, FARTHER, CLASS)]
    return found


def _question(than: str, estimator: Estimator, chance: str) -> Question:
    return Question(
        f"more than {than}: gap, {estimator.words}",
        lambda s: estimator.more_than(chance, s),
        lambda s: estimator.layers(chance, s),
    )


def answer(row: Row | None) -> str:
    """Return whether an effect is there: its interval lies below zero, or above; nothing where it was not computed."""
    if row is None or not np.isfinite(row.high):
        return markdown.NOTHING
    if row.high < 0:
        return YES
    return NO if row.low > 0 else CANNOT_TELL
