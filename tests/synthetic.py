"""Tables shaped like the paper's claims, without a model: Q-Anchored falls with depth, A-Anchored stays near zero."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa

from deltap.anchors import anchor, predicted
from deltap.tables import ANCHORS, CONTROLS, PROBES, SAMPLES, write_table

LABELS = {
    "model": {"qwen3-8b": "Qwen3-8B", "qwen3-32b": "Qwen3-32B"},
    "dataset": {"popqa": "PopQA", "triviaqa": "TriviaQA", "hotpotqa": "HotpotQA", "nq": "NQ"},
}
PAPER = {"qwen3-8b": 36, "qwen3-32b": 64}
SITES = ("attn", "mlp")
POSITIONS = ("exact_answer_last", "last", "before_exact_answer")


def metadata() -> dict:
    """Return what a run's tables say of labels."""
    return {"labels": {kind: [list(pair) for pair in names.items()] for kind, names in LABELS.items()}}


def anchors_of(model: str, dataset: str, layers: int, samples: int, site: str, position: str, seed: int) -> pa.Table:
    """Return the ANCHORS rows of one series, site and position."""
    generator = np.random.default_rng(seed)
    shape = (layers, samples)
    depth = np.arange(layers)[:, None] / layers
    fall = (0.72 if layers < 50 else 0.9) * (1 - np.exp(-6 * depth)) * (1 + 0.12 * generator.normal(size=(layers, 1)))
    from_question = generator.random(samples) < 0.45  # whose verdict hangs on the question
    truthful = generator.random(samples) < 0.5
    p_clean = np.clip(0.5 + 0.46 * np.sqrt(depth + 0.02) + 0.05 * generator.normal(size=shape), 0.505, 0.995)
    change = np.where(from_question, fall * generator.uniform(0.7, 1.15, shape), 0.02 * generator.normal(size=shape))
    p_knockout = np.clip(p_clean - change, 0.003, 0.997)
    says_truthful = np.where(truthful, 1, 0) ^ (generator.random(samples) < 0.2)
    flip = says_truthful[None, :] == 1
    p_clean, p_knockout = (np.where(flip, p, 1 - p).astype(np.float32) for p in (p_clean, p_knockout))
    flips = predicted(p_clean) != predicted(p_knockout)
    k_star = layers // 2
    count = layers * samples
    constants = {"model": model, "dataset": dataset, "extractor": "auto", "site": site, "position": position}
    columns = {
        **{name: np.repeat(value, count) for name, value in constants.items()},
        "layer": np.repeat(np.arange(layers), samples),
        "question_id": np.tile([f"q{index}" for index in range(samples)], layers),
        "label": np.tile(np.where(truthful, "truthful", "hallucinated"), layers),
        "p_clean": p_clean.ravel(),
        "p_knockout": p_knockout.ravel(),
        "predicted": predicted(p_clean).ravel(),
        "predicted_knockout": predicted(p_knockout).ravel(),
        "flips": flips.ravel(),
        "near_threshold": np.zeros(count, dtype=bool),
        "k_star": np.repeat(k_star, count),
        "anchor_reference": np.tile(anchor(flips[k_star]), layers),
    }
    return pa.table(columns).select(ANCHORS.names).cast(ANCHORS)


def anchors(
    samples: int,
    models: Mapping[str, int] = PAPER,
    datasets: Sequence[str] = tuple(LABELS["dataset"]),
    sites: Sequence[str] = ("attn",),
    positions: Sequence[str] = ("exact_answer_last",),
) -> pa.Table:
    """Return the ANCHORS table of a run."""
    parts = [
        anchors_of(model, dataset, layers, samples, site, position, seed=100 * index + layers)
        for model, layers in models.items()
        for index, dataset in enumerate(datasets)
        for site in sites
        for position in positions
    ]
    return pa.concat_tables(parts)


def probes(models: Mapping[str, int] = PAPER, datasets: Sequence[str] = tuple(LABELS["dataset"])) -> pa.Table:
    """Return the PROBES table of a run: AUROC rises from chance to about 0.85."""
    rows = [
        {
            "model": model, "dataset": dataset, "extractor": "auto", "site": "attn", "position": "exact_answer_last",
            "layer": layer, "split": split, "auroc": 0.5 + (0.38 - 0.03 * index) * (1 - np.exp(-5 * layer / layers)),
            "log_loss": 0.5, "accuracy": 0.7, "n_truthful": 500, "n_hallucinated": 550, "regularisation": 0.01,
            "converged": True,
        }
        for model, layers in models.items()
        for index, dataset in enumerate(datasets)
        for layer in range(layers)
        for split in ("train", "validation", "test")
    ]  # fmt: skip
    return pa.Table.from_pylist(rows, PROBES)


def samples(asked: int = 300, datasets: Sequence[str] = tuple(LABELS["dataset"])) -> pa.Table:
    """Return the SAMPLES table of a run in which each data set loses a few questions more than the last."""
    rows = []
    for model in PAPER:
        for index, dataset in enumerate(datasets):
            reasons = ["abstained"] * (3 * index) + ["empty_answer"] * index + ["no_exact_answer"] * (2 * index)
            for number in range(asked):
                reason = reasons[number] if number < len(reasons) else None
                label = "abstained" if reason == "abstained" else ("truthful", "hallucinated")[number % 2]
                rows.append({"model": model, "dataset": dataset, "extractor": "auto", "question_id": str(number),
                             "label": label, "exclusion": reason, "used_for_probes": reason is None})  # fmt: skip
    return pa.Table.from_pylist(rows, SAMPLES)


def write_run(
    folder: Path, number: int, sites: Sequence[str] = ("attn",), positions: Sequence[str] = ("exact_answer_last",)
) -> None:
    """Write a run's tables for figures, with ``number`` test samples for each model and data set."""
    from deltap.delta_p import each_series, summarise, tidy
    from deltap.settings import ANCHORS as NAMES
    from deltap.settings import GROUPINGS, BootstrapSettings, DeltaPStage
    from deltap.tables import DELTA_P, SUMMARY

    table = anchors(number, sites=sites, positions=positions)
    write_table(folder / "anchors.parquet", table, ANCHORS, metadata())
    rows = [
        tidy(series, DeltaPStage(anchor=name, groupings=GROUPINGS, reference_class="predicted"))
        for series in each_series([table])
        for name in NAMES
    ]
    write_table(folder / "delta_p.parquet", pa.concat_tables(rows), DELTA_P, metadata())
    summary = [summarise(series, BootstrapSettings()) for series in each_series([pa.concat_tables(rows)])]
    made_by = {"settings": BootstrapSettings().model_dump()}
    write_table(
        folder / "delta_p_summary.parquet", pa.concat_tables(summary), SUMMARY, {**metadata(), "provenance": made_by}
    )
    write_table(folder / "probes.parquet", probes(), PROBES, metadata())
    write_table(folder / "samples.parquet", samples(), SAMPLES, metadata())


def controls(models: Mapping[str, int] = PAPER, datasets: Sequence[str] = tuple(LABELS["dataset"])) -> pa.Table:
    """Return the CONTROLS table of a run in which the method's gap exceeds that of every control.

    With the grouping ``per_layer`` nothing is known at the first two layers. Windows are read at k*, in the middle of
    the depth.
    """
    rows = [
        {
            "model": model,
            "dataset": dataset,
            "extractor": "auto",
            "site": "attn",
            "position": "exact_answer_last",
            **row,
        }
        for model, layers in models.items()
        for index, dataset in enumerate(datasets)
        for row in [*_controls_of(layers, 100 * index + layers), *_windows_of(layers)]
    ]
    return pa.Table.from_pylist(rows, CONTROLS)


def _controls_of(layers: int, seed: int) -> list[dict]:
    shares = {"exact_question": 1.0, "random_tokens": 0.45, "random_mass": 0.5, "answer_queries": 0.8, "noise": 0.35,
              "permuted_labels": 0.85, "cross_fitted": 0.9}  # fmt: skip
    same = {f"{name} same_groups": 0.4 * shares[name] for name in ("random_tokens", "random_mass", "noise")}
    levels: list[tuple[str, str, str | None, str | None, float]] = []
    for control, share in {**shares, **same}.items():
        found: list[tuple[str, str | None, str | None, float]] = [("delta_p", None, None, -30)]
        for grouping in ("per_layer", "reference"):
            found += [("gap", grouping, None, -60)]
            found += [("delta_p", grouping, "q_anchored", -65), ("delta_p", grouping, "a_anchored", -5)]
        if control in shares:
            found += [("flip_rate", "per_layer", None, 40)]
        for statistic, grouping, group, level in found:
            levels.append((control, statistic, grouping, group, level * share))
            if control != "exact_question":
                levels.append((control, f"{statistic}_difference", grouping, group, level * (1 - share)))
    levels += [("leave_layers_out", "gap", "reference", None, -50)]
    levels += [("class", "gap", grouping, "reweighted", -40) for grouping in ("per_layer", "reference")]
    generator = np.random.default_rng(seed)
    fall = 1 - np.exp(-6 * np.arange(layers) / layers)
    rows = []
    for control, statistic, grouping, group, level in levels:
        key = {"control": control, "statistic": statistic, "grouping": grouping, "group": group}
        for layer, value in enumerate(level * fall * (1 + 0.08 * generator.normal(size=layers))):
            if grouping == "per_layer" and not statistic.startswith("flip_rate") and layer < 2:
                rows.append({**key, "layer": layer, "n": 3})
            else:
                ends = {"ci_low": value - 4, "ci_high": value + 4}
                rows.append({**key, "layer": layer, "n": 40, "value": value, **ends})
        rows.append({**key, "n": 40, "value": level})  # over layers
    return rows


def _windows_of(layers: int) -> list[dict]:
    rows = []
    for width, level in ((1, -6.0), (4, -20.0)):
        for group, share in (("q_anchored", 1.0), ("a_anchored", 0.1), (None, 0.5)):
            for layer in range(layers):
                value = level * share * np.exp(-(((layer - 0.4 * layers) / (0.15 * layers)) ** 2))
                key = {"control": f"window_{width}", "statistic": "delta_p", "grouping": "reference", "group": group}
                ends = {"ci_low": value - 1, "ci_high": value + 1}
                rows.append({**key, "layer": layer, "at": layers // 2, "n": 40, "value": value, **ends})
    return rows
