"""ΔP and groups of the test samples as each control estimates them, beside those of the method."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from deltap.anchors import anchor, predicted
from deltap.controls.measured import Measured
from deltap.controls.probabilities import EXACT, Key, Probabilities, Readout
from deltap.delta_p import delta_p
from deltap.settings import Anchor, ControlSettings, Estimate, Grouping, Intervention, ReferenceClass
from deltap.tables import DELTA_P

METHOD = "exact_question"
COMPARED: tuple[Intervention, ...] = ("noise", "random_tokens", "random_mass", "answer_queries")
"""What the method's cut is compared to."""
ESTIMATORS: tuple[Estimate, ...] = ("cross_fitted", "leave_layers_out")
"""Ways to form groups elsewhere than where ΔP is measured, which other cuts and permuted labels are put through too."""
Groups = dict[Grouping, np.ndarray]
"""For each grouping, which test samples are Q-Anchored: boolean, shape (layers, samples)."""


@dataclass(frozen=True)
class Draw:
    """One draw of an estimate: probabilities of ``truthful`` and groups, over layers and samples."""

    clean: np.ndarray
    """Shape (layers, samples), as the next ones."""
    cut: np.ndarray
    delta_p: np.ndarray
    """Percentage points; NaN where a sample was not measured."""
    q_anchored: Groups


@dataclass(frozen=True)
class Estimated:
    """What one control estimates instead of the method's own curve."""

    intervention: Intervention
    estimate: Estimate
    draws: Sequence[Draw]
    together: int = 1
    """So many draws, one after the other, belong together: both halves of cross-fitting."""

    @property
    def name(self) -> str:
        """Of the control; the method's own is ``exact_question``."""
        return control_name(self.intervention, self.estimate)

    @property
    def compared_to(self) -> str:
        """The name of what it is a control of: the method, or the same estimator of the method's cut and labels."""
        of_estimator = next((each for each in ESTIMATORS if self.estimate.endswith(each)), METHOD)
        return METHOD if self.name == of_estimator else of_estimator

    def delta_p(self) -> np.ndarray:
        """Return ΔP, shape (draws, layers, samples)."""
        return np.stack([draw.delta_p for draw in self.draws])

    def q_anchored(self, grouping: Grouping) -> np.ndarray:
        """Return who is Q-Anchored, boolean, shape (draws, layers, samples)."""
        return np.stack([draw.q_anchored[grouping] for draw in self.draws])

    @property
    def groupings(self) -> list[Grouping]:
        """The groupings that it has."""
        return list(self.draws[0].q_anchored)


def flips(clean: np.ndarray, cut: np.ndarray) -> np.ndarray:
    """Tell whose predicted class differs between the two; not measured (NaN) is no flip."""
    return (predicted(clean) != predicted(cut)) & np.isfinite(cut)


def groups(flipped: np.ndarray, k_star: int) -> Groups:
    """Return both groupings of flips of shape (layers, samples): by the flips at each layer, and by those at k*."""
    return {"per_layer": flipped, "reference": np.broadcast_to(flipped[k_star], flipped.shape)}


def farther_layers(aurocs: np.ndarray, away: int) -> np.ndarray:
    """Return for each layer k the best layer (validation AUROC, the lowest of equals) outside k - away … k + away.

    -1 where there is none. Shape (layers,).
    """
    layers = np.arange(len(aurocs))
    outside = abs(layers[:, None] - layers) > away
    best = np.where(outside, aurocs, -np.inf).argmax(axis=1)
    return np.where(outside.any(axis=1), best, -1)


def control_name(intervention: str, estimate: str) -> str:
    """Return the name of a control; what is as in the method is not said, and the method's is ``exact_question``."""
    return " ".join(part for part in (intervention, estimate) if part not in (METHOD, "plain")) or METHOD


class Estimates:
    """Every estimate of a series, from its probabilities."""

    def __init__(
        self,
        measured: Measured,
        found: Probabilities,
        settings: ControlSettings,
        reference_class: ReferenceClass,
    ) -> None:
        self.measured, self.found, self.settings = measured, found, settings
        self.reference_class = reference_class
        self.plain = groups(flips(found.clean, found.cut), measured.k_star)

    def method(self) -> Estimated:
        """Return what the method itself estimates."""
        return Estimated("exact_question", "plain", [self._draw(self.found.clean, self.found.cut, self.plain)])

    def controls(self) -> Iterator[Estimated]:
        """Yield what every control estimates."""
        found, k_star = self.found, self.measured.k_star
        clean = found.clean
        yield from self._elsewhere("exact_question", "", found.own, found.halves, [EXACT])
        for intervention in COMPARED:
            keys = sorted(key for key in found.own.cuts if key[0] == intervention)
            if keys:
                cuts = [found.own.cuts[key][0] for key in keys]
                own = [self._draw(clean, cut, groups(flips(clean, cut), k_star)) for cut in cuts]
                yield Estimated(intervention, "plain", own)
                yield Estimated(intervention, "same_groups", [self._draw(clean, cut, self.plain) for cut in cuts])
                yield from self._elsewhere(intervention, "", found.own, found.halves, keys)
        if len(found.permuted.clean):
            permuted = [
                self._draw(before, after, groups(flips(before, after), found.permuted.k_star(draw)),
                           found.permuted.k_star(draw))
                for draw, (before, after) in enumerate(zip(found.permuted.clean, found.permuted.cut, strict=True))
            ]  # fmt: skip
            yield Estimated("exact_question", "permuted_labels", permuted)
            yield from self._elsewhere(
                "exact_question", "permuted_labels_", found.permuted, found.permuted_halves, [EXACT]
            )
        calibrated = found.calibrated
        # Tempering moves no probability across 0.5.
        yield Estimated(
            "exact_question", "calibrated", [self._draw(calibrated.clean[0], calibrated.cut[0], self.plain)]
        )

    def _elsewhere(
        self, intervention: Intervention, prefix: str, whole: Readout, halves: Readout, keys: Sequence[Key]
    ) -> Iterator[Estimated]:
        """Yield the estimates by groups that are formed elsewhere than where ΔP is measured: see `ESTIMATORS`."""
        if len(halves.clean):
            crossed = [draw for key in keys for draw in self._crossed(halves, key)]
            yield Estimated(intervention, f"{prefix}cross_fitted", crossed, together=2)  # type: ignore[arg-type]
        if self.settings.leave_layers_out is not None:
            farther = [
                self._farther(whole, index, whole.cuts[key][index]) for key in keys for index in range(len(whole.clean))
            ]
            yield Estimated(intervention, f"{prefix}leave_layers_out", farther)  # type: ignore[arg-type]

    def _crossed(self, halves: Readout, key: Key) -> Iterator[Draw]:
        """Yield what each half's probes measure, with the groups of the flips by the other half's."""
        for first in range(0, len(halves.clean), 2):
            for measures, assigns in ((first + 1, first), (first, first + 1)):
                flipped = flips(halves.clean[assigns], halves.cuts[key][assigns])
                grouped = groups(flipped, halves.k_star(assigns))
                yield self._draw(halves.clean[measures], halves.cuts[key][measures], grouped, halves.k_star(measures))

    def _farther(self, whole: Readout, index: int, cut: np.ndarray) -> Draw:
        """Return ΔP with the groups of the best layer that is far enough away."""
        assert self.settings.leave_layers_out is not None
        clean = whole.clean[index]
        chosen = farther_layers(whole.auroc[index], self.settings.leave_layers_out)
        nowhere = (chosen < 0)[:, None]
        fixed: Groups = {"reference": flips(clean, cut)[chosen]}
        return self._draw(clean, np.where(nowhere, np.nan, cut), fixed, whole.k_star(index))

    def stable(self, q_anchored: np.ndarray, stable: np.ndarray) -> Estimated:
        """Return the estimate of the samples that are ``stable`` alone, in their majority's group.

        Both are boolean, of shape (samples,).
        """
        cut = np.where(stable, self.found.cut, np.nan)
        fixed: Groups = {"reference": np.broadcast_to(q_anchored, cut.shape)}
        return Estimated("exact_question", "stable_samples", [self._draw(self.found.clean, cut, fixed)])

    def _draw(self, clean: np.ndarray, cut: np.ndarray, grouped: Groups, k_star: int | None = None) -> Draw:
        return Draw(clean, cut, self.delta_p(clean, cut, k_star), grouped)

    def delta_p(self, clean: np.ndarray, cut: np.ndarray, k_star: int | None = None) -> np.ndarray:
        """Return ΔP of probabilities of shape (layers, samples), for the run's reference class.

        ``k_star``: of the probes that say so; by default the measured ones'.
        """
        return delta_p(clean, cut, self.refers_to_truthful(clean, k_star))

    def refers_to_truthful(self, clean: np.ndarray, k_star: int | None = None) -> np.ndarray:
        """Tell where the reference class is ``truthful``, shape (layers, samples)."""
        says = clean >= 0.5
        match self.reference_class:
            case "truthful":
                return np.ones_like(says)
            case "gold":
                return np.broadcast_to(self.measured.truthful["test"], says.shape)
            case "predicted":
                return says
            case "predicted_at_reference":
                return np.broadcast_to(says[self.measured.k_star if k_star is None else k_star], says.shape)


def rows(
    estimated: Estimated,
    measured: Measured,
    groupings: Sequence[Grouping],
    anchors: Sequence[Anchor],
    constants: Mapping[str, str],
) -> pa.Table:
    """Return the DELTA_P rows of an estimate, of the groupings and anchors that the run asks for.

    ``constants``: model, dataset, extractor, site and position.
    """
    parts = []
    for number, draw in enumerate(estimated.draws):
        layers, samples = np.nonzero(np.isfinite(draw.delta_p))
        for grouping in estimated.groupings:
            if grouping not in groupings:
                continue
            columns = {
                **{name: np.repeat(value, len(layers)) for name, value in constants.items()},
                "intervention": np.repeat(estimated.intervention, len(layers)),
                "estimate": np.repeat(estimated.estimate, len(layers)),
                "draw": np.repeat(number, len(layers)),
                "grouping": np.repeat(grouping, len(layers)),
                "anchor": anchor(draw.q_anchored[grouping][layers, samples]),
                "layer": layers,
                "question_id": measured.question_ids[samples],
                "label": measured.labels[samples],
                "predicted": predicted(draw.clean[layers, samples]),
                "p_clean": draw.clean[layers, samples],
                "p_knockout": draw.cut[layers, samples],
                "delta_p": draw.delta_p[layers, samples],
            }
            of_anchors = np.isin(columns["anchor"], anchors)
            parts.append(pa.table(columns).select(DELTA_P.names).cast(DELTA_P).filter(of_anchors))
    return pa.concat_tables([DELTA_P.empty_table(), *parts])
