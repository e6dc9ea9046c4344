"""Probes: classifiers that read from one activation whether the answer is truthful."""

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from joblib import Parallel, delayed
from scipy.linalg.lapack import dormqr
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score
from sklearn.preprocessing import StandardScaler
from sklearn.utils.class_weight import compute_sample_weight
from threadpoolctl import threadpool_limits

from deltap.probe import Probe
from deltap.settings import SPLITS, ProbeSettings
from deltap.tensors import ActivationFiles

Rows = dict[str, np.ndarray]
"""An array for each split."""


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
    # The basis Q of x.T = QR stays a product of reflections; writing it out would take as long as finding it.
    reflections = None
    if x.shape[0] < x.shape[1]:
        vectors, scales = np.linalg.qr(x.T, mode="raw")
        reflections = vectors.T, scales
        x = np.tril(vectors[:, : len(vectors)])
    models = []
    for value in values:
        model = LogisticRegression(C=value, class_weight="balanced", max_iter=settings.max_iterations)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)  # the fit says itself whether it converged
            models.append(model.fit(x, y))
    weights = np.concatenate([model.coef_ for model in models], dtype=np.float64).T
    if reflections:
        weights = _in_features(reflections, weights)
    return [
        Fit(
            Probe((weight[:, None],), (model.intercept_.astype(np.float64),)),
            value,
            bool(model.n_iter_[0] < settings.max_iterations),
        )
        for model, value, weight in zip(models, values, weights.T, strict=True)
    ]


def _in_features(reflections: tuple[np.ndarray, np.ndarray], weights: np.ndarray) -> np.ndarray:
    """Return Q times the columns of ``weights``, for the Q that LAPACK gives as reflections and their scales."""
    vectors, scales = reflections
    padded = np.zeros((len(vectors), weights.shape[1]), order="F")
    padded[: len(weights)] = weights
    product, _, failed = dormqr("L", "N", vectors, scales, padded, 64 * len(vectors))
    assert not failed
    return product


def _fit_mlp(x: np.ndarray, y: np.ndarray, values: Sequence[float], settings: ProbeSettings) -> list[Fit]:
    from sklearn.neural_network import MLPClassifier  # what few runs use need not be loaded by all

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
    files: ActivationFiles,
    rows: Rows,
    truthful: Rows,
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
    with Parallel(n_jobs=jobs) as parallel:
        candidates = parallel(
            delayed(_fit_layer)(files, layer, rows, truthful, values, settings) for layer in range(files.layers)
        )
        losses = np.mean([loss for _, loss in candidates], axis=0)
        chosen = [fits[int(np.argmin(losses))] for fits, _ in candidates]
        scores = parallel(
            delayed(_score_layer)(found, files, layer, rows, truthful) for layer, found in enumerate(chosen)
        )
    return list(zip(chosen, scores, strict=True))


def _fit_layer(
    files: ActivationFiles, layer: int, rows: Rows, truthful: Rows, values: list[float], settings: ProbeSettings
) -> tuple[list[Fit], list[float]]:
    """Return a fit for each regularisation, and its log loss on the validation split."""
    x = files.layer(layer)
    validation = x[rows["validation"]]
    with threadpool_limits(1):
        fits = fit(x[rows["train"]], truthful["train"], values, settings)
        losses = [balanced_log_loss(truthful["validation"], each.probe.probability(validation)) for each in fits]
    return fits, losses


def balanced_log_loss(truthful: np.ndarray, probability: np.ndarray) -> float:
    """Return the log loss in nats, both classes weighing the same.

    scikit-learn's, with balanced weights, gives the same; its checks take longer than a small layer's fit.
    """
    smallest = np.finfo(np.float64).eps
    p = np.clip(probability, smallest, 1 - smallest)
    return float(-(np.log(p[truthful]).mean() + np.log1p(-p[~truthful]).mean()) / 2)


def _score_layer(found: Fit, files: ActivationFiles, layer: int, rows: Rows, truthful: Rows) -> list[dict[str, Any]]:
    """Return the scores of a layer's probe for each split."""
    x = files.layer(layer)
    with threadpool_limits(1):
        return [_score(found, x[rows[split]], truthful[split], layer, split) for split in SPLITS]


def _score(found: Fit, x: np.ndarray, truthful: np.ndarray, layer: int, split: str) -> dict[str, Any]:
    probability = found.probe.probability(x)
    both = 0 < truthful.sum() < len(truthful)
    return {
        "layer": layer,
        "split": split,
        "auroc": float(roc_auc_score(truthful, probability)) if both else None,
        "log_loss": balanced_log_loss(truthful, probability) if both else None,
        "accuracy": float(((probability >= 0.5) == truthful).mean()) if len(truthful) else None,
        "n_truthful": int(truthful.sum()),
        "n_hallucinated": int((~truthful).sum()),
        "regularisation": found.regularisation,
        "converged": found.converged,
    }
