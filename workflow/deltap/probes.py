"""Probes: classifiers that read from one activation whether the answer is truthful."""

import json
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from joblib import Parallel, delayed
from safetensors import SafetensorError
from safetensors.numpy import load_file, save_file
from scipy.special import expit
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss, roc_auc_score
from sklearn.neural_network import MLPClassifier
from sklearn.preprocessing import StandardScaler
from sklearn.utils.class_weight import compute_sample_weight
from threadpoolctl import threadpool_limits

from deltap.errors import DeltapError
from deltap.files import whole
from deltap.settings import SPLITS, ProbeSettings

if TYPE_CHECKING:  # so that the processes that fit do not load torch
    from deltap.tensors import ActivationFiles

Arrays = dict[str, np.ndarray]


@dataclass(frozen=True)
class Probe:
    """A trained probe: affine maps with ReLU between them and the logistic function at the end.

    A logistic regression has one map. The standardisation of the training data is folded into the first.
    """

    weights: tuple[np.ndarray, ...]
    """Float64, shapes (inputs, outputs); the last has one output."""
    biases: tuple[np.ndarray, ...]

    def probability(self, activations: np.ndarray) -> np.ndarray:
        """Return the probability of ``truthful``, shape (samples,), for activations of shape (samples, hidden)."""
        values = np.asarray(activations, dtype=np.float64)
        for index, (weight, bias) in enumerate(zip(self.weights, self.biases, strict=True)):
            values = (np.maximum(values, 0) if index else values) @ weight + bias
        return expit(values[:, 0])

    def arrays(self) -> Arrays:
        """Return the probe as named arrays."""
        maps = enumerate(zip(self.weights, self.biases, strict=True))
        return {f"{name}{index}": array for index, pair in maps for name, array in zip(("w", "b"), pair, strict=True)}

    @classmethod
    def from_arrays(cls, arrays: Arrays) -> "Probe":
        """Return the probe that `arrays` describes."""
        count = len(arrays) // 2
        return cls(tuple(arrays[f"w{i}"] for i in range(count)), tuple(arrays[f"b{i}"] for i in range(count)))


@dataclass(frozen=True)
class Fit:
    """A trained probe and how it was chosen."""

    probe: Probe
    regularisation: float
    converged: bool


def lacking_class(truthful: dict[str, np.ndarray]) -> str | None:
    """Return why no probe can be trained, with the remedy: the train or validation split has one class only.

    ``truthful`` holds a boolean array for each split. None where both have both.
    """
    for split in ("train", "validation"):
        right, wrong = int(truthful[split].sum()), int((~truthful[split]).sum())
        if not right or not wrong:
            return (
                f"the {split} split has {right} truthful and {wrong} hallucinated answers; a probe needs both: "
                f"ask more or {'easier' if not right else 'harder'} questions (questions.number), or give the {split} "
                "split a larger share (questions.splits)"
            )
    return None


def untrained(layers: int, truthful: dict[str, np.ndarray]) -> list[dict[str, Any]]:
    """Return the scores of probes that could not be trained (of PROBES): numbers of samples and nothing else."""
    return [
        {
            "layer": layer,
            "split": split,
            "n_truthful": int(truthful[split].sum()),
            "n_hallucinated": int((~truthful[split]).sum()),
        }
        for layer in range(layers)
        for split in SPLITS
    ]


def fit(x: np.ndarray, truthful: np.ndarray, values: Sequence[float], settings: ProbeSettings) -> list[Fit]:
    """Train a probe for each regularisation in ``values``, on ``x`` of shape (samples, hidden) and its labels.

    Features are standardised and classes weigh the same, so that probabilities refer to equal priors.
    """
    scaler = StandardScaler().fit(x.astype(np.float64))
    kind = {"logistic": _fit_logistic, "mlp": _fit_mlp}[settings.kind]
    found = kind(scaler.transform(x), truthful, values, settings)
    return [Fit(_fold(each.probe, scaler), each.regularisation, each.converged) for each in found]


def _fit_logistic(x: np.ndarray, y: np.ndarray, values: Sequence[float], settings: ProbeSettings) -> list[Fit]:
    # With an L2 penalty the weights are a combination of the samples. With fewer samples than features it is therefore
    # the same problem in as many dimensions as samples, and at 5,120 features and 1,000 samples a fifth of the work.
    basis = None
    if x.shape[0] < x.shape[1]:
        basis, triangle = np.linalg.qr(x.T)
        x = triangle.T
    fits = []
    for value in values:
        model = LogisticRegression(C=value, class_weight="balanced", max_iter=settings.max_iterations)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)  # the fit says itself whether it converged
            model.fit(x, y)
        weight = model.coef_.T if basis is None else basis @ model.coef_.T
        probe = Probe((weight.astype(np.float64),), (model.intercept_.astype(np.float64),))
        fits.append(Fit(probe, value, bool(model.n_iter_[0] < settings.max_iterations)))
    return fits


def _fit_mlp(x: np.ndarray, y: np.ndarray, values: Sequence[float], settings: ProbeSettings) -> list[Fit]:
    fits = []
    for value in values:
        model = MLPClassifier(
            (settings.hidden_units,), alpha=value, max_iter=settings.max_iterations, random_state=settings.seed
        )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            model.fit(x, y, sample_weight=compute_sample_weight("balanced", y))
        probe = Probe(tuple(model.coefs_), tuple(model.intercepts_))
        fits.append(Fit(probe, value, bool(model.n_iter_ < settings.max_iterations)))
    return fits


def _fold(probe: Probe, scaler: StandardScaler) -> Probe:
    """Return the probe for activations as they are, instead of standardised ones."""
    weight = probe.weights[0] / scaler.scale_[:, None]
    bias = probe.biases[0] - scaler.mean_ @ weight
    return Probe((weight, *probe.weights[1:]), (bias, *probe.biases[1:]))


def fit_layers(
    files: "ActivationFiles",
    rows: dict[str, np.ndarray],
    truthful: dict[str, np.ndarray],
    settings: ProbeSettings,
    jobs: int,
) -> list[tuple[Fit, list[dict[str, Any]]]]:
    """Train a probe for each layer of one site and position; return the fits with their scores per split (of PROBES).

    ``rows`` are each split's rows in the clean activations ``files``. All layers get the same regularisation, the one
    of the lowest validation log loss on average over the layers (ties: the strongest). Log loss, because ΔP is made of
    probabilities and AUROC, which hardly depends on the strength, does not see how far they go; one for all layers,
    because the depth of ΔP depends on it and would jump from layer to layer for no reason in the model. Each fit runs
    on one thread, so that the number of ``jobs`` changes nothing.
    """
    # The strongest first: a small C, or a large weight decay.
    values = sorted(settings.regularisation, reverse=settings.kind == "mlp")
    layers = (files.layer(layer).numpy() for layer in range(files.layers))
    candidates = Parallel(n_jobs=jobs)(
        delayed(_fit_layer)({split: x[rows[split]] for split in ("train", "validation")}, truthful, values, settings)
        for x in layers
    )
    losses = np.mean([loss for _, loss in candidates], axis=0)
    best = int(np.argmin(losses))
    result = []
    for layer, (fits, _) in enumerate(candidates):
        states = files.layer(layer).numpy()
        scores = [_score(fits[best], states[rows[split]], truthful[split], layer, split) for split in SPLITS]
        result.append((fits[best], scores))
    return result


def _fit_layer(
    x: Arrays, truthful: Arrays, values: list[float], settings: ProbeSettings
) -> tuple[list[Fit], list[float]]:
    """Return a fit for each regularisation, and its log loss on the validation split."""
    with threadpool_limits(1):
        fits = fit(x["train"], truthful["train"], values, settings)
        losses = [_log_loss(truthful["validation"], each.probe.probability(x["validation"])) for each in fits]
    return fits, losses


def _log_loss(truthful: np.ndarray, probability: np.ndarray) -> float:
    """Return the log loss in nats, both classes weighing the same."""
    weights = compute_sample_weight("balanced", truthful)
    return float(log_loss(truthful, probability, sample_weight=weights, labels=[False, True]))


def _score(found: Fit, x: np.ndarray, truthful: np.ndarray, layer: int, split: str) -> dict[str, Any]:
    probability = found.probe.probability(x)
    both = 0 < truthful.sum() < len(truthful)
    return {
        "layer": layer,
        "split": split,
        "auroc": float(roc_auc_score(truthful, probability)) if both else None,
        "log_loss": _log_loss(truthful, probability) if both else None,
        "accuracy": float(((probability >= 0.5) == truthful).mean()) if len(truthful) else None,
        "n_truthful": int(truthful.sum()),
        "n_hallucinated": int((~truthful).sum()),
        "regularisation": found.regularisation,
        "converged": found.converged,
    }


def write_probes(path: Path, probes: dict[tuple[str, str, int], Probe], metadata: dict[str, Any]) -> None:
    """Write probes by (site, position, layer) as a whole safetensors file, with ``metadata`` as JSON."""
    arrays = {
        f"{site}/{position}/{layer}/{name}": np.ascontiguousarray(array)
        for (site, position, layer), probe in probes.items()
        for name, array in probe.arrays().items()
    }
    with whole(path) as temporary:
        save_file(arrays, temporary, {"deltap": json.dumps(metadata, sort_keys=True)})


def read_probes(path: Path) -> dict[tuple[str, str, int], Probe]:
    """Return the probes that `write_probes` wrote; raise DeltapError if the file cannot be read."""
    try:
        arrays = load_file(path)
    except (OSError, SafetensorError) as error:
        raise DeltapError(f"{path}: damaged probes ({error}); delete the file and run snakemake again") from None
    found: dict[tuple[str, str, int], Arrays] = {}
    for key, array in arrays.items():
        site, position, layer, name = key.split("/")
        found.setdefault((site, position, int(layer)), {})[name] = array
    return {key: Probe.from_arrays(named) for key, named in found.items()}


def reference_layer(layers: Sequence[int], aurocs: Sequence[float]) -> int:
    """Return k*: the layer of the best validation AUROC, the lowest of equals."""
    return min(zip(layers, aurocs, strict=True), key=lambda pair: (-pair[1], pair[0]))[0]
