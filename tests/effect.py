"""A model of the effect with known truth: activations, clean and cut, in which evidence and noise are put by hand.

Every layer has the same direction of truth u (a unit vector). A sample's clean activation at layer k is

    x_k = s t u + e_k,    t = ±1 its label, s the strength of its evidence, e_k ~ N(0, 1) in every feature

and under the cut of the exact question, for a share of the samples (those whose evidence flows from the question) and
all others alike,

    x'_k = x_k - [from the question] 2 s t u - l s t u + (noise of the cut)

so that evidence from the question turns around, and evidence in the answer stays but for a share l, which any cut
costs. The noise of the cut stands along u, anew at each layer (*activation noise*: what is special to a layer) or the
same at all of them (*carried noise*, as along the residual stream), or across u, where a perfect probe would not see it
and only a probe that learnt it by chance does (*probe noise*). The cuts of random tokens are the same without the turn.
"""

import tempfile
from collections import Counter
from pathlib import Path

import numpy as np
import torch

from deltap.controls.against import compare
from deltap.controls.classes import classes
from deltap.controls.compare import Bootstrap
from deltap.controls.estimates import Estimated, Estimates
from deltap.controls.lookup import Statistics
from deltap.controls.measured import Cut, Measured
from deltap.controls.probabilities import probabilities
from deltap.controls.questions import YES, answer, questions
from deltap.controls.rows import Rows
from deltap.probe import reference_layer
from deltap.probes import fit_layers
from deltap.settings import BootstrapSettings, ControlSettings, ProbeSettings
from deltap.tensors import ActivationFiles, write_activations

LAYERS, HIDDEN = 12, 40
SIZES = {"train": 160, "validation": 120, "test": 500}


def measured(
    folder: Path,
    strength: float = 1.5,
    spread: float = 0.0,
    from_question: float = 0.0,
    loss: float = 0.0,
    activation_noise: float = 0.0,
    carried_noise: float = 0.0,
    probe_noise: float = 0.0,
    random_cuts: int = 0,
    weaker: float = 1.0,
    seed: int = 0,
) -> tuple[Measured, np.ndarray]:
    """Return what is measured of the model, and whose evidence flows from the question (boolean).

    ``spread`` is the standard deviation of the logarithm of s among samples, whose mean is ``strength``;
    ``from_question`` the share of samples whose evidence flows from the question, ``loss`` is l, noises are standard
    deviations, and ``random_cuts`` is how many draws of random tokens, and as many of equal attention, there are, with
    ``weaker`` times the loss and noise.
    """
    random = np.random.default_rng(seed)
    total = sum(SIZES.values())
    truthful = random.random(total) < 0.5
    direction = np.zeros(HIDDEN)
    direction[0] = 1.0
    strengths = strength * np.exp(spread * random.normal(size=total) - spread**2 / 2) if spread else strength
    evidence = strengths * np.where(truthful, 1.0, -1.0)
    clean = random.normal(size=(LAYERS, total, HIDDEN)) + evidence[:, None] * direction
    ends = np.cumsum([0, *SIZES.values()])
    rows = {name: np.arange(*ends[index : index + 2]) for index, name in enumerate(SIZES)}

    test = rows["test"]
    questioned = random.random(len(test)) < from_question

    def cut(turned: np.ndarray | float = 0.0, share: float = 1.0) -> np.ndarray:
        """Return the test samples' activations under a cut; ``turned``: whose evidence turns around."""
        across = random.normal(size=(1, len(test), HIDDEN)) * (direction == 0)  # the same at every layer
        along = activation_noise * random.normal(size=(LAYERS, len(test), 1))
        if carried_noise:
            along = along + carried_noise * random.normal(size=(1, len(test), 1))
        removed = ((2 * turned + share * loss) * evidence[test])[:, None] * direction
        return clean[:, test] - removed + share * (along * direction + probe_noise * across)

    folder.mkdir(parents=True, exist_ok=True)
    everything = {"clean": clean, "knockout": cut(questioned)}
    keys = [(name, draw) for name in ("random_tokens", "random_mass") for draw in range(random_cuts)]
    everything |= {f"{name}.{draw}": cut(share=weaker) for name, draw in keys}
    for name, x in everything.items():
        write_activations(folder / f"{name}.safetensors", [torch.tensor(x, dtype=torch.float32)], {})
    files = {name: ActivationFiles([folder / f"{name}.safetensors"]) for name in everything}
    settings = ProbeSettings(regularisation=(1.0,))
    labels = {split: truthful[where] for split, where in rows.items()}
    fitted = fit_layers(files["clean"], rows, labels, settings, jobs=1)
    aurocs = np.array([next(row["auroc"] for row in scores if row["split"] == "validation") for _, scores in fitted])
    found = Measured(
        clean=files["clean"],
        rows=rows,
        truthful=labels,
        cut=Cut(files["knockout"], np.arange(len(test))),
        question_ids=np.array([f"q{index}" for index in range(len(test))]),
        labels=np.where(labels["test"], "truthful", "hallucinated"),
        probes=[fit.probe for fit, _ in fitted],
        k_star=reference_layer(range(LAYERS), aurocs),
        regularisation=1.0,
        probe_settings=settings,
        aurocs=aurocs,
        interventions={key: Cut(files[f"{key[0]}.{key[1]}"], np.arange(len(test))) for key in keys},
    )
    return found, questioned


CUT = {"spread": 0.6, "loss": 0.2, "activation_noise": 0.7, "carried_noise": 0.7, "probe_noise": 0.7}
"""What any cut does to evidence that differs in strength."""
CASES: dict[str, dict[str, float]] = {
    "no effect": CUT,
    "no effect, noise carried through all layers": {
        "strength": 1.0, "spread": 0.8, "loss": 0.3, "carried_noise": 1.5, "probe_noise": 0.3,
    },
    "no effect, and the probes learnt nothing": {**CUT, "strength": 0.0},
    "no effect, but random tokens disturb half as much": {**CUT, "weaker": 0.5},
    "a quarter of the samples' evidence flows from the question": {**CUT, "from_question": 0.25},
}  # fmt: skip


def answers(folder: Path, **model: float) -> dict[str, str]:
    """Return what the report's questions are answered of a model of the effect."""
    found, _ = measured(folder, random_cuts=3, **model)  # type: ignore[arg-type]
    settings = ControlSettings(permuted_labels=0, noise=0, refits=0, strength=())
    estimates = Estimates(found, probabilities(found, settings), settings, "predicted")
    method, controls = estimates.method(), list(estimates.controls())
    bootstrap = Bootstrap.seeded(found.samples, BootstrapSettings(draws=300), settings.min_n)
    rows = Rows(dict.fromkeys(("model", "dataset", "extractor", "site", "position"), "x"), 0.95)
    compare(method, controls, bootstrap, rows)
    random = [each for each in controls if each.name in ("random_tokens", "random_mass")]
    classes(method, random, found.truthful["test"], bootstrap, rows)
    statistics = Statistics(rows.table().to_pandas())
    return {question.asks: answer(question.statistic(statistics)) for question in questions({"": statistics})}


def main() -> None:
    """Print the mean gap by each estimator for three models of the effect, and how often each question says yes."""
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
    for title, model in CASES.items():
        said = Counter[str]()
        for seed in range(40):
            with tempfile.TemporaryDirectory() as folder:
                said.update(asks for asks, word in answers(Path(folder), **model, seed=seed).items() if word == YES)
        print(f"{title}: yes in", *(f"{times} of 40 ({asks})" for asks, times in said.items()), sep="\n  ")


def gap(estimated: Estimated, grouping: str = "per_layer") -> float:
    """Return mean ΔP of Q-Anchored less that of A-Anchored, mean over the layers, all draws pooled."""
    values, q = estimated.delta_p(), estimated.q_anchored(grouping)  # type: ignore[arg-type]
    there = np.isfinite(values)
    layers = range(values.shape[1])
    gaps = [values[:, k][q[:, k] & there[:, k]].mean() - values[:, k][~q[:, k] & there[:, k]].mean() for k in layers]
    return float(np.mean(gaps))


if __name__ == "__main__":
    main()
