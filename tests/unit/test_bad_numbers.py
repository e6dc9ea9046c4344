"""Activations that no classifier likes, and too few samples of a kind: each stage says what is, and invents nothing.

Every case goes from the activations to verdict and figures, through the stages' own scripts.
"""

import json
import logging
import re
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch

import stages
import tiny
from deltap.errors import DeltapError
from deltap.probe import read_probes
from deltap.tables import ANCHORS, DELTA_P, LABELS, PROBES, SUMMARY, read_metadata, read_table, write_table
from deltap.tensors import ActivationFiles, write_activations

LAYERS = 4


@pytest.fixture
def folder(whole_run, tmp_path):
    return Path(shutil.copytree(whole_run.folder, tmp_path / "run"))


def replace_activations(folder, change, dtype=torch.float32, passes=("clean", "knockout")):
    """Put ``change(values, truthful, layer)`` in place of each layer's activations; values are (samples, hidden)."""
    rows = [row for row in read_table(folder / "labels.parquet", LABELS).to_pylist() if row["exclusion"] is None]
    for name in passes:
        for shard, path in enumerate(stages.activations(folder, name)):
            files = ActivationFiles([path])
            mine = sorted((row for row in rows if row["shard"] == shard and row[f"{name}_row"] is not None),
                          key=lambda row: row[f"{name}_row"])  # fmt: skip
            truthful = np.array([row["label"] == "truthful" for row in mine], dtype=bool)
            values = [change(files.layer(layer).copy(), truthful, layer) for layer in range(files.layers)]
            tensor = torch.from_numpy(np.stack(values).astype(np.float32)).to(dtype)
            write_activations(path, [tensor], {"provenance": files.provenance})


def relabel(folder, change):
    """Change rows of the labelled answers, in place."""
    path = folder / "labels.parquet"
    rows, metadata = read_table(path, LABELS).to_pylist(), read_metadata(path)
    change([row for row in rows if row["exclusion"] is None])
    write_table(path, rows, LABELS, metadata)


def to_the_end(folder, **probe):
    """Run everything behind inference and return the tables; check what holds whatever the numbers are."""
    stages.probes(folder, **probe)
    stages.anchors(folder)
    stages.tables(folder)
    scores = read_table(folder / "probes.scores.parquet", PROBES).to_pylist()
    for row in scores:
        numbers = [row[name] for name in ("auroc", "log_loss", "accuracy")]
        assert all(number is None or np.isfinite(number) for number in numbers), row
        assert row["auroc"] is None or 0 <= row["auroc"] <= 1
    anchors = read_table(folder / "anchors.parquet", ANCHORS).to_pandas()
    for name in ("p_clean", "p_knockout"):
        assert anchors[name].between(0, 1).all()
    delta_p = read_table(folder / "delta_p.parquet", DELTA_P).to_pandas()
    assert delta_p["delta_p"].between(-100, 100).all()
    summary = read_table(folder / "delta_p_summary.parquet", SUMMARY).to_pylist()
    for row in summary:
        assert (row["mean"] is None) == (row["n"] == 0)
        assert (row["ci_low"] is None) == (row["ci_high"] is None) == (row["n"] < 2)
        assert row["n"] == 0 or np.isfinite(row["mean"])
        assert row["n"] < 2 or row["ci_low"] <= row["mean"] + 1e-9
    json.loads((folder / "verdict.json").read_text(), parse_constant=pytest.fail)
    (folder / "verdict.md").read_text().encode()
    return scores, anchors, delta_p, summary


def draw(folder):
    """Draw figures of the means, of single samples and of the groups."""
    common = {"site": "attn", "position": "exact_answer_last", "formats": ["png"]}
    for kind, table in (("delta_p", "delta_p_summary"), ("delta_p_distribution", "anchors"), ("groups", "anchors")):
        settings = json.dumps({"figures": {kind: {"kind": kind, **common}}})
        stages.run("plot", settings=settings, figures=None, only=[], table=[folder / f"{table}.parquet"], labels="{}",
                   expected=None, jobs=1, out=folder / "figures")  # fmt: skip
        assert (folder / "figures" / f"{kind}.png").stat().st_size > 1000


def put(values, columns):
    values[:] = 0
    values[:, : columns.shape[1]] = columns
    return values


NOISE = np.random.default_rng(0)
CASES = {
    "all zero": lambda values, truthful, layer: values * 0,
    "one layer zero": lambda values, truthful, layer: values * (layer != 1),
    "every sample the same": lambda values, truthful, layer: np.ones_like(values) * 3.7,
    "one feature that is not constant": lambda values, truthful, layer: put(
        values, NOISE.normal(size=(len(values), 1))
    ),
    "features that repeat": lambda values, truthful, layer: np.repeat(values[:, :1], values.shape[1], axis=1),
    "perfectly separable": lambda values, truthful, layer: put(values, np.where(truthful, 1.0, -1.0)[:, None]),
    "separable by a hair": lambda values, truthful, layer: put(values, np.where(truthful, 1e-30, 0.0)[:, None]),
    "very large": lambda values, truthful, layer: np.sign(values) * 1e30,
    "one outlier": lambda values, truthful, layer: values + 1e20 * (np.arange(len(values)) == 0)[:, None],
    "very small": lambda values, truthful, layer: values * 1e-38,
    "noise": lambda values, truthful, layer: NOISE.normal(size=values.shape),
}


@pytest.mark.parametrize(
    ("case", "kind"),
    [
        *((case, "logistic") for case in CASES),
        *((case, "mlp") for case in ("all zero", "perfectly separable", "very large")),
    ],
)
def test_odd_activations_give_numbers_or_none(case, kind, folder):
    replace_activations(folder, CASES[case])
    scores, anchors, *_ = to_the_end(folder, kind=kind, hidden_units=2, max_iterations=50)
    if kind == "logistic":
        test = {row["layer"]: row for row in scores if row["split"] == "test"}
        if case in ("all zero", "every sample the same"):
            assert {row["auroc"] for row in test.values()} == {0.5}
            assert not anchors["flips"].any()  # both passes are the same
        if case == "perfectly separable":
            assert {row["auroc"] for row in test.values()} == {1.0}


def test_their_figures_are_drawn(folder):
    replace_activations(folder, CASES["all zero"])
    to_the_end(folder)
    draw(folder)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_the_largest_numbers_of_a_short_dtype_are_read(dtype, folder):
    largest = torch.finfo(dtype).max
    replace_activations(folder, lambda values, truthful, layer: np.sign(values) * min(largest, 6.5e4), dtype)
    to_the_end(folder)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("name", ["clean", "knockout"])
def test_a_file_with_bad_numbers_is_refused_by_file_and_layer(name, value, folder):
    def one(values, truthful, layer):
        values[-1, -1] = value if layer == 2 else 1
        return values

    stages.probes(folder)
    replace_activations(folder, one, passes=(name,))
    first = re.escape(str(stages.activations(folder, name)[0]))
    with pytest.raises(DeltapError, match=f"{first}: damaged, .*NaN or infinity in layer 2"):
        (stages.probes if name == "clean" else stages.anchors)(folder)


def test_probes_with_bad_numbers_are_refused(folder):
    from deltap.probe import Probe, made_probes, write_probes

    path = folder / "probes.safetensors"
    probes = {**read_probes(path), ("attn", "exact_answer_last", 1): Probe((np.full((32, 1), np.nan),), (np.zeros(1),))}
    write_probes(path, probes, {"provenance": made_probes(path)})
    with pytest.raises(DeltapError, match="NaN or infinity in the probe of attn, exact_answer_last, layer 1"):
        stages.anchors(folder)


def test_overflow_in_float16_stops_inference_by_name(folder):
    """Weights that float32 can bear and float16 cannot."""
    model = tiny.model("llama")
    model.generation_config.eos_token_id = list(range(1, 400, 4))
    with torch.no_grad():
        model.model.layers[2].mlp.down_proj.weight.mul_(1e6)
    model.save_pretrained(folder / "model")
    shutil.rmtree(folder / "inference")
    stages.inference(folder, 0)
    with pytest.raises(DeltapError) as error:
        stages.inference(folder, 0, dtype="float16")
    assert re.search(r"NaN or infinity|not finite|load check", str(error.value)), str(error.value)
    assert "bfloat16" in str(error.value)


def test_probes_that_do_not_converge_are_said_and_used(folder, caplog):
    with caplog.at_level(logging.WARNING, "deltap"):
        scores, *_ = to_the_end(folder, max_iterations=1)
    assert f"{LAYERS} of {LAYERS} probes did not converge; raise probe.max_iterations" in caplog.text
    assert not any(row["converged"] for row in scores)


def one_class(split, label):
    def change(rows):
        for row in rows:
            if row["split"] == split:
                row["label"] = label

    return change


@pytest.mark.parametrize("label", ["truthful", "hallucinated"])
@pytest.mark.parametrize("split", ["train", "validation", "test"])
def test_one_class_in_a_split(split, label, folder, caplog):
    relabel(folder, one_class(split, label))
    with caplog.at_level(logging.WARNING, "deltap"):
        scores, anchors, _, summary = to_the_end(folder)
    if split == "test":
        assert len(anchors)
        assert all(row["auroc"] is None for row in scores if row["split"] == "test")
    else:
        assert re.search(rf"no probes, and so no curves: the {split} split has .*; a probe needs both", caplog.text)
        assert not len(anchors)
        assert not summary


@pytest.mark.parametrize("number", [0, 1, 2, 3])
def test_few_test_samples(number, folder):
    """And with them groups of none, one and two."""

    def change(rows):
        for row in [row for row in rows if row["split"] == "test"][number:]:
            row["label"] = "abstained"

    relabel(folder, change)
    _, anchors, _, summary = to_the_end(folder)
    assert len(anchors) == number * LAYERS
    assert all(row["n"] <= number for row in summary)
    if number == 1:
        draw(folder)


@pytest.mark.parametrize(("q", "a"), [(0, 16), (1, 15), (2, 14), (15, 1), (16, 0)])
def test_groups_of_hardly_any_sample(q, a, folder):
    """The knockout pass turns the answer's only feature around for as many samples as are to flip."""

    def turned(values, truthful, layer):
        return put(values, np.where(truthful, 1.0, -1.0)[:, None])

    replace_activations(folder, turned)
    knockout = stages.activations(folder, "knockout")
    flipped = 0
    for path in knockout:
        files = ActivationFiles([path])
        states = np.stack([files.layer(layer).copy() for layer in range(files.layers)])
        chosen = min(q - flipped, states.shape[1])
        states[:, :chosen] *= -1
        flipped += chosen
        write_activations(path, [torch.from_numpy(states)], {"provenance": files.provenance})
    _, anchors, _, summary = to_the_end(folder)
    total = len(anchors) // LAYERS
    expected = {"q_anchored": min(q, total), "a_anchored": total - min(q, total)}
    for row in summary:
        assert row["n"] == expected[row["anchor"]]
        if row["n"]:
            assert (row["mean"] < 0) == (row["anchor"] == "q_anchored")
    if q == 1:
        draw(folder)
