"""What one series measured at one site and position, as the controls take it: activations, labels, probes."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from deltap.probe import Probe
from deltap.probes import Rows
from deltap.settings import ProbeSettings
from deltap.tensors import ActivationFiles


@dataclass(frozen=True)
class Cut:
    """The activations of the test samples under another intervention, one draw of it."""

    files: ActivationFiles
    rows: np.ndarray
    """The row of each test sample, -1 where it has none; shape (samples,)."""

    def probability(self, probe: Probe, place: int) -> np.ndarray:
        """Return the probability of ``truthful`` by ``probe`` at ``place`` of the files' first dimension.

        Shape (samples,); NaN where a sample was not measured.
        """
        there = self.rows >= 0
        found = np.full(len(self.rows), np.nan)
        if there.any():
            found[there] = probe.probability(self.files.layer(place)[self.rows[there]])
        return found


@dataclass(frozen=True)
class Measured:
    """One series at one site and position. Test samples are in the order of ``question_ids``."""

    clean: ActivationFiles
    rows: Rows
    """Each split's rows in the clean activations."""
    truthful: Rows
    """Each split's labels."""
    cut: Cut
    """The exact question cut, in every layer."""
    question_ids: np.ndarray
    labels: np.ndarray
    """Of the test samples, as in LABELS."""
    probes: Sequence[Probe]
    """One for each layer."""
    k_star: int
    regularisation: float
    """The probes' strength."""
    probe_settings: ProbeSettings
    interventions: Mapping[tuple[str, int], Cut] = field(default_factory=dict)
    """By intervention and draw, those that have an activation for each layer."""

    @property
    def layers(self) -> int:
        """Number of layers."""
        return len(self.probes)

    @property
    def samples(self) -> int:
        """Number of test samples."""
        return len(self.question_ids)
