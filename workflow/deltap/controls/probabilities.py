"""The probabilities of the test samples by other probes and under other interventions.

Activations are large, probabilities small: each layer's activations are read once, every probe that a control needs is
trained on them, and what goes on are probabilities alone. Layers are independent of each other and of the number of
processes; every draw has a generator of its own, from the seed, the control and the draw's number.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
from joblib import Parallel, delayed
from scipy.optimize import minimize_scalar
from scipy.special import expit
from sklearn.metrics import roc_auc_score
from threadpoolctl import threadpool_limits

from deltap.controls.measured import Measured
from deltap.probe import Probe, reference_layer
from deltap.probes import fit
from deltap.settings import ControlSettings, ProbeSettings

Drawn = Literal["permuted_labels", "noise", "refits"]
_NUMBER: dict[Drawn, int] = {"permuted_labels": 1, "noise": 2, "refits": 3}
Key = tuple[str, int]
"""An intervention and the number of its draw."""
EXACT: Key = ("exact_question", 0)


@dataclass(frozen=True)
class Readout:
    """What sets of probes, one probe for each layer, say of the test samples: probabilities of ``truthful``.

    In single precision, as tables store them; NaN where a sample was not measured.
    """

    clean: np.ndarray
    """Shape (sets, layers, samples)."""
    cuts: dict[Key, np.ndarray]
    """Under each cut that was asked for, of the same shape; `EXACT` is always among them."""
    auroc: np.ndarray
    """On the validation split, shape (sets, layers)."""
    temperature: np.ndarray
    """By which logits are divided, so that the validation split's log loss is least; shape (sets, layers)."""

    @property
    def cut(self) -> np.ndarray:
        """Probabilities under the cut of the exact question, shape (sets, layers, samples)."""
        return self.cuts[EXACT]

    def k_star(self, index: int) -> int:
        """Return the reference layer of a set of probes."""
        return reference_layer(range(self.auroc.shape[1]), self.auroc[index])


@dataclass(frozen=True)
class Probabilities:
    """What the measured probes say, and what those say that were trained anew for the controls."""

    own: Readout
    """One set: the measured probes, under every cut and every draw of noise."""
    calibrated: Readout
    """The same with logits divided by the temperature."""
    halves: Readout
    """Two sets: trained on one half of the training samples, and on the other; under every cut."""
    permuted: Readout
    """Trained on permuted labels, one set for each draw."""
    permuted_halves: Readout
    """Trained on the halves of the same permuted labels, two sets for each draw."""
    strengths: Readout
    """Probes of other strengths; their validation scores are those of the same validation split."""
    strengths_calibrated: Readout
    refits: Readout
    """Trained on training samples that are drawn with replacement, each class as often as it is."""
    logit_change: dict[Key, np.ndarray]
    """How far each cut moves the measured probes: the standard deviation over samples of the change of the logit,
    shape (layers,)."""

    @property
    def clean(self) -> np.ndarray:
        """Probabilities by the measured probes, shape (layers, samples)."""
        return self.own.clean[0]

    @property
    def cut(self) -> np.ndarray:
        """The same under the cut of the exact question."""
        return self.own.cut[0]

    def under(self, intervention: str) -> list[np.ndarray]:
        """Return the same under each draw of an intervention, in their order; none where it was not made."""
        return [self.own.cuts[key][0] for key in sorted(self.own.cuts) if key[0] == intervention]


def generator(settings: ControlSettings, control: Drawn, draw: int) -> np.random.Generator:
    """Return the generator of one draw of a control; it depends on nothing else."""
    return np.random.default_rng([settings.seed, _NUMBER[control], draw])


def halves(truthful: np.ndarray) -> list[np.ndarray]:
    """Return the indices of both halves of training samples: of each class every second one.

    Samples are in the order of their hashes, so this is a random division that needs no seed.
    """
    order = np.argsort(truthful, kind="stable")
    place = np.empty(len(truthful), dtype=int)
    for value in (False, True):
        of_class = order[truthful[order] == value]
        place[of_class] = np.arange(len(of_class))
    return [np.flatnonzero(place % 2 == half) for half in (0, 1)]


def strength_for(share: float, settings: ProbeSettings, value: float) -> float:
    """Return the regularisation that weighs the same per sample when only a share of the samples is left.

    The logistic penalty is weighed against the *sum* of the losses by C, so half of the samples need twice the C; the
    mlp's weight decay against their mean, divided by their number, so half of it.
    """
    return value / share if settings.kind == "logistic" else value * share


def temperature(truthful: np.ndarray, logits: np.ndarray) -> float:
    """Return the T > 0 for which the probabilities σ(logits / T) have the least log loss.

    Both classes weigh the same; without both of them T is 1.
    Source: Guo et al. 2017, "On Calibration of Modern Neural Networks". It moves no probability across 0.5.
    """
    if not 0 < truthful.sum() < len(truthful):
        return 1.0
    signed = np.where(truthful, logits, -logits)

    def loss(exponent: float) -> float:
        of_sample = np.logaddexp(0, -signed / np.exp(exponent))  # of logits, for probabilities round to 0 and 1
        return float(of_sample[truthful].mean() + of_sample[~truthful].mean())

    return float(np.exp(minimize_scalar(loss, bounds=(-5, 5), method="bounded").x))


def noise(here: np.ndarray, neighbour: np.ndarray, draws: list[np.random.Generator]) -> list[np.ndarray]:
    """Return activations with noise at the level between two layers, for each generator.

    ``here`` and ``neighbour`` are the same samples' activations at two neighbouring layers, shape (samples, hidden).
    With z the activations standardised feature by feature, d = (z_neighbour - z_here) / √2 is the part of one layer
    that the other does not share, where both have as much of their own. A sample gets the d of another sample, drawn
    with replacement, with a random sign and in this layer's units. So the noise goes together between features as the
    difference of layers does; and between layers, for a draw has the same donors and signs at each of them. (Ours.)
    """
    scale = here.std(axis=0)
    own = (_standardised(neighbour) - _standardised(here)) / np.sqrt(2)
    own -= own.mean(axis=0)
    result = []
    for random in draws:
        donors, signs = random.integers(0, len(here), len(here)), random.choice([-1.0, 1.0], len(here))
        result.append(here + signs[:, None] * own[donors] * scale)
    return result


def _standardised(x: np.ndarray) -> np.ndarray:
    scale = x.std(axis=0)
    return (x - x.mean(axis=0)) / np.where(scale > 0, scale, 1)


def probabilities(measured: Measured, settings: ControlSettings, jobs: int = 1) -> Probabilities:
    """Return the probabilities under every control of ``settings``; ``jobs`` layers at a time change no number."""
    layers = Parallel(n_jobs=jobs)(delayed(_layer)(measured, settings, layer) for layer in range(measured.layers))
    found = {name: _Logits.over([of_layer[name] for of_layer in layers]) for name in layers[0]}
    own = found["own"]
    readouts = {name: logits.readout() for name, logits in found.items()}
    return Probabilities(
        **readouts,
        calibrated=own.readout(calibrated=True),
        strengths_calibrated=found["strengths"].readout(calibrated=True),
        logit_change={key: _spread(cut[0] - own.clean[0]) for key, cut in own.cuts.items()},
    )


def _spread(change: np.ndarray) -> np.ndarray:
    """Return the standard deviation over the samples that were measured, NaN where none was."""
    there = np.isfinite(change)
    return np.array([row[of].std() if of.any() else np.nan for row, of in zip(change, there, strict=True)])


class _Logits(NamedTuple):
    """As `Readout`, but logits in double precision; of one layer, or of all of them."""

    clean: np.ndarray
    cuts: dict[Key, np.ndarray]
    auroc: np.ndarray
    temperature: np.ndarray

    @classmethod
    def over(cls, layers: "Sequence[_Logits]") -> "_Logits":
        """Return several layers' as one."""
        return cls(
            np.stack([each.clean for each in layers], axis=1),
            {key: np.stack([each.cuts[key] for each in layers], axis=1) for key in layers[0].cuts},
            np.stack([each.auroc for each in layers], axis=1),
            np.stack([each.temperature for each in layers], axis=1),
        )

    def readout(self, calibrated: bool = False) -> Readout:
        """Return the probabilities, ``calibrated``: of logits divided by the temperature."""
        scale = self.temperature[..., None] if calibrated else 1.0

        def said(logits: np.ndarray) -> np.ndarray:
            return expit(logits / scale).astype(np.float32)

        return Readout(
            said(self.clean), {key: said(cut) for key, cut in self.cuts.items()}, self.auroc, self.temperature
        )


def _layer(measured: Measured, settings: ControlSettings, layer: int) -> dict[str, _Logits]:
    with threadpool_limits(1):
        return _Layer(measured, settings, layer).everything()


class _Scored(NamedTuple):
    """A probe, and the validation samples and labels that it is scored on."""

    probe: Probe
    rows: slice | np.ndarray
    truthful: np.ndarray


class _Layer:
    """One layer's activations and what is computed from them."""

    def __init__(self, measured: Measured, settings: ControlSettings, layer: int) -> None:
        self.measured, self.settings, self.layer = measured, settings, layer
        activations = measured.clean.layer(layer)
        self.train, self.validation, self.clean = (
            activations[measured.rows[split]] for split in ("train", "validation", "test")
        )

    def everything(self) -> dict[str, _Logits]:
        """Return what every set of probes says of this layer."""
        measured, settings = self.measured, self.settings
        labels, validation = measured.truthful["train"], measured.truthful["validation"]
        own, everyone = measured.regularisation, slice(None)

        permuted, permuted_halves = [], []
        for draw in range(settings.permuted_labels):
            random = generator(settings, "permuted_labels", draw)
            shuffled, shuffled_validation = random.permutation(labels), random.permutation(validation)
            permuted.append(_Scored(self._fit(shuffled, [own])[0], everyone, shuffled_validation))
            permuted_halves += [_Scored(half, everyone, shuffled_validation) for half in self._halves(shuffled)]
        refits = []
        for draw in range(settings.refits):
            random = generator(settings, "refits", draw)
            rows, chosen = _resampled(labels, random), _resampled(validation, random)
            refits.append(_Scored(self._fit(labels, [own], rows)[0], chosen, validation[chosen]))
        strengths = self._fit(labels, settings.strength) if settings.strength else []
        halved = self._halves(labels)

        # Each cut's activations are read once, for all the probes that look at it.
        several = {
            "own": [_Scored(measured.probes[self.layer], everyone, validation)],
            "halves": [_Scored(half, everyone, validation) for half in halved],
        }
        one = {
            "permuted": permuted,
            "permuted_halves": permuted_halves,
            "strengths": [_Scored(probe, everyone, validation) for probe in strengths],
            "refits": refits,
        }
        exact = measured.cut.at(self.layer)
        said = {name: self._logits(scored, exact) for name, scored in (several | one).items()}
        for key, activations in self._cuts():
            for name, scored in several.items():
                said[name].cuts[key] = self._say(scored, activations)
        return said

    def _cuts(self) -> "Iterable[tuple[Key, np.ndarray]]":
        """Yield the test samples' activations under each other cut, and with noise."""
        for key, cut in self.measured.whole.items():
            yield key, cut.at(self.layer)
        for draw, noisy in enumerate(self._noisy()):
            yield ("noise", draw), noisy

    def _noisy(self) -> list[np.ndarray]:
        measured, draws = self.measured, range(self.settings.noise)
        if not draws or measured.layers < 2 or not measured.samples:
            return [self.clean for _ in draws]
        other = self.layer + 1 if self.layer + 1 < measured.layers else self.layer - 1
        neighbour = measured.clean.layer(other)[measured.rows["test"]]
        return noise(self.clean, neighbour, [generator(self.settings, "noise", draw) for draw in draws])

    def _halves(self, truthful: np.ndarray) -> list[Probe]:
        """Return the probes of both halves; none where they are not asked for, or a class cannot be divided."""
        if not self.settings.cross_fitting or min(truthful.sum(), (~truthful).sum()) < 2:
            return []
        settings, own = self.measured.probe_settings, self.measured.regularisation
        return [
            self._fit(truthful, [strength_for(len(half) / len(truthful), settings, own)], half)[0]
            for half in halves(truthful)
        ]

    def _fit(
        self, truthful: np.ndarray, values: Sequence[float], rows: slice | np.ndarray = slice(None)
    ) -> list[Probe]:
        """Return a probe of each strength, trained on the training samples ``rows`` with these labels."""
        fitted = fit(self.train[rows], truthful[rows], values, self.measured.probe_settings)
        return [found.probe for found in fitted]

    def _logits(self, scored: Sequence[_Scored], exact: np.ndarray) -> _Logits:
        validation = [(truthful, probe.logit(self.validation[rows])) for probe, rows, truthful in scored]
        return _Logits(
            self._say(scored, self.clean),
            {EXACT: self._say(scored, exact)},
            np.array([roc_auc_score(truthful, logits) for truthful, logits in validation]),
            np.array([temperature(truthful, logits) for truthful, logits in validation]),
        )

    def _say(self, scored: Sequence[_Scored], activations: np.ndarray) -> np.ndarray:
        """Return the logits of the test samples by each probe, shape (probes, samples)."""
        logits = [each.probe.logit(activations) for each in scored]
        return np.array(logits).reshape(len(scored), self.measured.samples)


def _resampled(truthful: np.ndarray, random: np.random.Generator) -> np.ndarray:
    """Return indices drawn with replacement, from each class as many as it has, so that none is lost."""
    return np.concatenate([random.choice(rows, len(rows)) for rows in map(np.flatnonzero, (truthful, ~truthful))])
