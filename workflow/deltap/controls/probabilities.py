"""The probabilities of the test samples by other probes and under other interventions.

Activations are large, probabilities small: each layer's activations are read once, every probe that a control needs is
trained on them, and what goes on are probabilities alone. Layers are independent of each other and of the number of
processes; every draw has a generator of its own, from the seed, the control and the draw's number.
"""

from dataclasses import dataclass
from typing import Literal

import numpy as np
from joblib import Parallel, delayed
from scipy.optimize import minimize_scalar
from scipy.special import expit, logit
from sklearn.metrics import roc_auc_score
from threadpoolctl import threadpool_limits

from deltap.controls.measured import Measured
from deltap.probe import Probe
from deltap.probes import balanced_log_loss, fit
from deltap.settings import ControlSettings, ProbeSettings

Drawn = Literal["permuted_labels", "noise", "refits"]
_NUMBER: dict[Drawn, int] = {"permuted_labels": 1, "noise": 2, "refits": 3}
_CERTAIN = 1e-12  # probabilities nearer to 0 or 1 are taken to be so far away, where their logits are needed


@dataclass(frozen=True)
class Probabilities:
    """Probabilities of ``truthful`` of the test samples, in single precision as tables store them.

    Where a control has several draws (or halves, or strengths) they are the first dimension.
    """

    clean: np.ndarray
    """Shape (layers, samples); by the measured probes, as the next one."""
    cut: np.ndarray
    """Under the cut of the exact question."""
    temperature: np.ndarray
    """Shape (layers,): by which logits are divided, so that the validation split's log loss is least."""
    noise: np.ndarray
    """Shape (draws, layers, samples): instead of the cut, noise by which neighbouring layers differ."""
    interventions: dict[tuple[str, int], np.ndarray]
    """Under other interventions, shape (layers, samples); NaN where a sample was not measured."""
    permuted: "Retrained"
    """Probes trained on permuted labels."""
    halves: "Retrained"
    """Probes trained on one half of the training samples, then on the other."""
    strengths: "Retrained"
    """Probes of other strengths; their validation scores are those of the same validation split."""
    refits: "Retrained"
    """Probes trained on training samples that are drawn with replacement, each class as often as it is."""


@dataclass(frozen=True)
class Retrained:
    """What probes that were trained anew say, by draw."""

    clean: np.ndarray
    """Shape (draws, layers, samples), as the next one."""
    cut: np.ndarray
    auroc: np.ndarray
    """On the validation split, shape (draws, layers)."""
    temperature: np.ndarray
    """As `Probabilities.temperature`, shape (draws, layers)."""

    def k_star(self, draw: int) -> int:
        """Return the reference layer of a draw's own probes: the first of the best validation AUROC."""
        return int(np.argmax(self.auroc[draw]))


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


def temperature(truthful: np.ndarray, probability: np.ndarray) -> float:
    """Return the T > 0 for which the probabilities σ(logit(p) / T) have the least log loss.

    Both classes weigh the same; without both of them T is 1.
    Source: Guo et al. 2017, "On Calibration of Modern Neural Networks". It moves no probability across 0.5.
    """
    logits = _logit(probability)
    if not 0 < truthful.sum() < len(truthful):
        return 1.0
    found = minimize_scalar(
        lambda exponent: balanced_log_loss(truthful, expit(logits / np.exp(exponent))), bounds=(-5, 5), method="bounded"
    )
    return float(np.exp(found.x))


def tempered(probability: np.ndarray, temperature: np.ndarray) -> np.ndarray:
    """Return σ(logit(p) / T); ``probability`` has the shape (…, layers, samples), ``temperature`` (…, layers)."""
    logits = _logit(probability)
    return expit(logits / temperature[..., None])


def _logit(probability: np.ndarray) -> np.ndarray:
    return logit(np.clip(probability.astype(np.float64), _CERTAIN, 1 - _CERTAIN))


def noise(here: np.ndarray, neighbour: np.ndarray, draws: list[np.random.Generator]) -> list[np.ndarray]:
    """Return activations with noise at the level between two layers, for each generator.

    ``here`` and ``neighbour`` are the same samples' activations at two neighbouring layers, shape (samples, hidden).
    With z the activations standardised feature by feature, d = (z_neighbour - z_here) / √2 is the part of one layer
    that the other does not share, where both have as much of their own. A sample gets the d of another sample, drawn
    with replacement, with a random sign and in this layer's units. So the noise goes together between features as the
    difference of layers does. (Ours.)
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
    found = Parallel(n_jobs=jobs)(delayed(_layer)(measured, settings, layer) for layer in range(measured.layers))
    whole = {
        name: np.stack([each[name] for each in found], axis=-2).astype(np.float32)
        for name in found[0]
        if "/" not in name
    }
    scores = {name: np.stack([each[name] for each in found], axis=-1) for name in found[0] if "/" in name}

    def retrained(name: str) -> Retrained:
        both = whole[name]
        return Retrained(both[:, 0], both[:, 1], scores[f"{name}/auroc"], scores[f"{name}/temperature"])

    return Probabilities(
        clean=whole["clean"],
        cut=whole["cut"],
        temperature=scores["/temperature"],
        noise=whole["noise"],
        interventions=dict(zip(measured.whole, whole["interventions"], strict=True)),
        permuted=retrained("permuted"),
        halves=retrained("halves"),
        strengths=retrained("strengths"),
        refits=retrained("refits"),
    )


def _layer(measured: Measured, settings: ControlSettings, layer: int) -> dict[str, np.ndarray]:
    with threadpool_limits(1):
        return _Layer(measured, settings, layer).everything()


class _Layer:
    """One layer's activations and what is computed from them."""

    def __init__(self, measured: Measured, settings: ControlSettings, layer: int) -> None:
        self.measured, self.settings, self.layer = measured, settings, layer
        activations = measured.clean.layer(layer)
        self.train, self.validation, self.clean = (
            activations[measured.rows[split]] for split in ("train", "validation", "test")
        )
        self.cut = measured.cut.files.layer(layer)[measured.cut.rows]

    def everything(self) -> dict[str, np.ndarray]:
        measured, settings = self.measured, self.settings
        truthful, probe = measured.truthful, measured.probes[self.layer]
        own = measured.regularisation
        labels, validation = truthful["train"], truthful["validation"]

        permuted = []
        for draw in range(settings.permuted_labels):
            random = generator(settings, "permuted_labels", draw)
            permuted.append((random.permutation(labels), random.permutation(validation)))
        # A class of one sample cannot be divided; the job's estimates then lack cross-fitting.
        divided = settings.cross_fitting and min(labels.sum(), (~labels).sum()) > 1
        both = halves(labels) if divided else []
        refits = []
        for draw in range(settings.refits):
            random = generator(settings, "refits", draw)
            refits.append((_resampled(labels, random), _resampled(validation, random)))
        cuts = [each.probability(probe, self.layer) for each in measured.whole.values()]
        noisy = self._noisy()
        return {
            "clean": probe.probability(self.clean),
            "cut": probe.probability(self.cut),
            "/temperature": np.array(temperature(validation, probe.probability(self.validation))),
            "noise": np.array([probe.probability(x) for x in noisy]).reshape(len(noisy), measured.samples),
            "interventions": np.array(cuts).reshape(len(cuts), measured.samples),
            **self._retrained(
                "permuted",
                [(self._fit(self.train, y, [own])[0], slice(None), shuffled) for y, shuffled in permuted],
            ),
            **self._retrained(
                "halves",
                [
                    (
                        self._fit(
                            self.train[half],
                            labels[half],
                            [strength_for(len(half) / len(labels), measured.probe_settings, own)],
                        )[0],
                        slice(None),
                        validation,
                    )
                    for half in both
                ],
            ),
            **self._retrained(
                "strengths",
                [
                    (fitted, slice(None), validation)
                    for fitted in (self._fit(self.train, labels, settings.strength) if settings.strength else [])
                ],
            ),
            **self._retrained(
                "refits",
                [
                    (self._fit(self.train[rows], labels[rows], [own])[0], chosen, validation[chosen])
                    for rows, chosen in refits
                ],
            ),
        }

    def _noisy(self) -> list[np.ndarray]:
        measured, draws = self.measured, range(self.settings.noise)
        if not draws or measured.layers < 2 or not measured.samples:
            return [self.clean for _ in draws]
        other = self.layer + 1 if self.layer + 1 < measured.layers else self.layer - 1
        neighbour = measured.clean.layer(other)[measured.rows["test"]]
        return noise(self.clean, neighbour, [generator(self.settings, "noise", draw) for draw in draws])

    def _fit(self, x: np.ndarray, truthful: np.ndarray, values: list[float] | tuple[float, ...]) -> list[Probe]:
        return [found.probe for found in fit(x, truthful, values, self.measured.probe_settings)]

    def _retrained(
        self, name: str, probes: list[tuple[Probe, slice | np.ndarray, np.ndarray]]
    ) -> dict[str, np.ndarray]:
        """Return what ``probes`` say; with each, which validation samples it is scored on, and by which labels."""
        tests = [[probe.probability(x) for x in (self.clean, self.cut)] for probe, _, _ in probes]
        scored = [(labels, probe.probability(self.validation[rows])) for probe, rows, labels in probes]
        return {
            name: np.array(tests).reshape(len(probes), 2, self.measured.samples),
            f"{name}/auroc": np.array([roc_auc_score(labels, p) for labels, p in scored]),
            f"{name}/temperature": np.array([temperature(labels, p) for labels, p in scored]),
        }


def _resampled(truthful: np.ndarray, random: np.random.Generator) -> np.ndarray:
    """Return indices drawn with replacement, from each class as many as it has, so that none is lost."""
    return np.concatenate([random.choice(rows, len(rows)) for rows in map(np.flatnonzero, (truthful, ~truthful))])
