"""A model of the effect with known truth: activations, clean and cut, in which evidence and noise are put by hand.

Every layer has the same direction of truth u (a unit vector). A sample's clean activation at layer k is

    x_k = s t u + e_k,    t = ±1 its label, s the strength of the evidence, e_k ~ N(0, 1) in every feature

and under the cut, for a share of the samples (those whose evidence flows from the question) and all others alike,

    x'_k = x_k - [from the question] 2 s t u + (noise of the cut)

so that evidence from the question turns around, and evidence in the answer stays. The noise of the cut stands either
along u, anew at each layer (*activation noise*: what is special to a layer), or across u, where a perfect probe would
not see it and only a probe that learnt it by chance does (*probe noise*).
"""

import tempfile
from pathlib import Path

import numpy as np
import torch

from deltap.controls.estimates import Estimated, Estimates
from deltap.controls.measured import Cut, Measured
from deltap.controls.probabilities import probabilities
from deltap.probe import reference_layer
from deltap.probes import fit_layers
from deltap.settings import ControlSettings, ProbeSettings
from deltap.tensors import ActivationFiles, write_activations

LAYERS, HIDDEN = 12, 40
SIZES = {"train": 160, "validation": 120, "test": 500}


def measured(
    folder: Path,
    strength: float = 1.5,
    from_question: float = 0.0,
    activation_noise: float = 0.0,
    probe_noise: float = 0.0,
    seed: int = 0,
) -> tuple[Measured, np.ndarray]:
    """Return what is measured of the model, and whose evidence flows from the question (boolean).

    ``from_question`` is the share of samples whose evidence flows from the question; noises are standard deviations.
    """
    random = np.random.default_rng(seed)
    total = sum(SIZES.values())
    truthful = random.random(total) < 0.5
    direction = np.zeros(HIDDEN)
    direction[0] = 1.0
    evidence = strength * np.where(truthful, 1.0, -1.0)
    clean = random.normal(size=(LAYERS, total, HIDDEN)) + evidence[:, None] * direction
    ends = np.cumsum([0, *SIZES.values()])
    rows = {name: np.arange(*ends[index : index + 2]) for index, name in enumerate(SIZES)}

    test = rows["test"]
    questioned = random.random(len(test)) < from_question
    across = random.normal(size=(1, len(test), HIDDEN)) * (direction == 0)  # the same at every layer
    along = random.normal(size=(LAYERS, len(test), 1)) * direction
    turned = -2 * (questioned * evidence[test])[:, None] * direction
    cut = clean[:, test] + turned + activation_noise * along + probe_noise * across

    folder.mkdir(parents=True, exist_ok=True)
    for name, x in (("clean", clean), ("knockout", cut)):
        write_activations(folder / f"{name}.safetensors", [torch.tensor(x, dtype=torch.float32)], {})
    files = ActivationFiles([folder / "clean.safetensors"])
    settings = ProbeSettings(regularisation=(1.0,))
    labels = {split: truthful[where] for split, where in rows.items()}
    fitted = fit_layers(files, rows, labels, settings, jobs=1)
    aurocs = np.array([next(row["auroc"] for row in scores if row["split"] == "validation") for _, scores in fitted])
    found = Measured(
        clean=files,
        rows=rows,
        truthful=labels,
        cut=Cut(ActivationFiles([folder / "knockout.safetensors"]), np.arange(len(test))),
        question_ids=np.array([f"q{index}" for index in range(len(test))]),
        labels=np.where(labels["test"], "truthful", "hallucinated"),
        probes=[fit.probe for fit, _ in fitted],
        k_star=reference_layer(range(LAYERS), aurocs),
        regularisation=1.0,
        probe_settings=settings,
        aurocs=aurocs,
    )
    return found, questioned


def main() -> None:
    """Print the mean gap by each estimator, for three models of the effect."""
    settings = ControlSettings(permuted_labels=0, noise=0, refits=0, strength=(), interventions=None)
    columns = (("exact_question", "per_layer"), ("cross_fitted", "per_layer"), ("exact_question", "reference"),
               ("leave_layers_out", "reference"))  # fmt: skip
    for title, model in {
        "probe noise": {"probe_noise": 1.5},
        "activation noise": {"activation_noise": 1.5},
        "effect": {"from_question": 0.3},
    }.items():
        with tempfile.TemporaryDirectory() as folder:
            found, _ = measured(Path(folder), **model)
            estimates = Estimates(found, probabilities(found, settings), settings, "predicted")
        by_name = {each.name: each for each in [estimates.method(), *estimates.controls()]}
        print(title, *(f"{name}/{grouping} {gap(by_name[name], grouping):.1f}" for name, grouping in columns), sep="; ")


def gap(estimated: Estimated, grouping: str = "per_layer") -> float:
    """Return mean ΔP of Q-Anchored less that of A-Anchored, mean over the layers, all draws pooled."""
    values, q = estimated.delta_p(), estimated.q_anchored(grouping)  # type: ignore[arg-type]
    there = np.isfinite(values)
    layers = range(values.shape[1])
    gaps = [values[:, k][q[:, k] & there[:, k]].mean() - values[:, k][~q[:, k] & there[:, k]].mean() for k in layers]
    return float(np.mean(gaps))


if __name__ == "__main__":
    main()
