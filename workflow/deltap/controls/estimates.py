"""ΔP and groups of the test samples as each control estimates them, beside those of the method."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from deltap.anchors import anchor, predicted
from deltap.controls.measured import Measured
from deltap.controls.probabilities import Probabilities, Retrained, tempered
from deltap.delta_p import delta_p
from deltap.settings import ControlSettings, Estimate, Grouping, Intervention, ReferenceClass
from deltap.tables import DELTA_P

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

    @property
    def name(self) -> str:
        """Of the control; the method's own is ``exact_question``."""
        parts = [self.intervention, self.estimate]
        plain = ("exact_question", "plain")
        return " ".join(part for part in parts if part not in plain) or plain[0]

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
        return self._of("exact_question", "plain", [(self.found.clean, self.found.cut, self.plain)])

    def controls(self) -> Iterator[Estimated]:
        """Yield what every control estimates."""
        found, settings, k_star = self.found, self.settings, self.measured.k_star
        clean = found.clean
        others: dict[Intervention, list[np.ndarray]] = {"noise": list(found.noise)}
        for (name, _), cut in found.interventions.items():
            if name in ("random_tokens", "random_mass", "answer_queries"):
                others.setdefault(name, []).append(cut)  # type: ignore[arg-type]
        for intervention, cuts in others.items():
            if cuts:
                own = [(clean, cut, groups(flips(clean, cut), k_star)) for cut in cuts]
                yield self._of(intervention, "plain", own)
                yield self._of(intervention, "same_groups", [(clean, cut, self.plain) for cut in cuts])
        if settings.permuted_labels:
            yield self._of("exact_question", "permuted_labels", list(_own(found.permuted)))
        if len(found.halves.clean):
            yield self._of("exact_question", "cross_fitted", list(_crossed(found.halves)))
        if settings.leave_layers_out is not None:
            chosen = farther_layers(self.measured.aurocs, settings.leave_layers_out)
            q = self.plain["per_layer"][chosen]
            cut = np.where((chosen < 0)[:, None], np.nan, found.cut)
            yield self._of("exact_question", "leave_layers_out", [(clean, cut, {"reference": q})])
        calibrated = tempered(clean, found.temperature), tempered(found.cut, found.temperature)
        yield self._of("exact_question", "calibrated", [(*calibrated, self.plain)])

    def stable(self, q_anchored: np.ndarray, stable: np.ndarray) -> Estimated:
        """Return the estimate of the samples that are ``stable`` alone, in their majority's group.

        Both are boolean, of shape (samples,).
        """
        cut = np.where(stable, self.found.cut, np.nan)
        fixed: Groups = {"reference": np.broadcast_to(q_anchored, cut.shape)}
        return self._of("exact_question", "stable_samples", [(self.found.clean, cut, fixed)])

    def _of(
        self, intervention: Intervention, estimate: Estimate, parts: Sequence[tuple[np.ndarray, np.ndarray, Groups]]
    ) -> Estimated:
        draws = [
            Draw(clean, cut, delta_p(clean, cut, self.refers_to_truthful(clean)), grouped)
            for clean, cut, grouped in parts
        ]
        return Estimated(intervention, estimate, draws)

    def refers_to_truthful(self, clean: np.ndarray) -> np.ndarray:
        """Tell where the reference class is ``truthful``."""
        says = clean >= 0.5
        match self.reference_class:
            case "truthful":
                return np.ones_like(says)
            case "gold":
                return np.broadcast_to(self.measured.truthful["test"], says.shape)
            case "predicted":
                return says
            case "predicted_at_reference":
                return np.broadcast_to(says[self.measured.k_star], says.shape)


def _own(retrained: Retrained) -> Iterator[tuple[np.ndarray, np.ndarray, Groups]]:
    """Yield each draw with the groups of its own flips."""
    for draw, (clean, cut) in enumerate(zip(retrained.clean, retrained.cut, strict=True)):
        yield clean, cut, groups(flips(clean, cut), retrained.k_star(draw))


def _crossed(halves: Retrained) -> Iterator[tuple[np.ndarray, np.ndarray, Groups]]:
    """Yield what each half's probes measure, with the groups of the other half's flips."""
    for measures, assigns in ((1, 0), (0, 1)):
        flipped = flips(halves.clean[assigns], halves.cut[assigns])
        yield halves.clean[measures], halves.cut[measures], groups(flipped, halves.k_star(assigns))


def rows(
    estimated: Estimated, measured: Measured, groupings: Sequence[Grouping], constants: Mapping[str, str]
) -> pa.Table:
    """Return the DELTA_P rows of an estimate; ``constants``: model, dataset, extractor, site and position."""
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
            parts.append(pa.table(columns).select(DELTA_P.names).cast(DELTA_P))
    return pa.concat_tables([DELTA_P.empty_table(), *parts])
