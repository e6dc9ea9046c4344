"""Anchors and ΔP on hand-made probabilities."""

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from deltap.anchors import anchor, predicted
from deltap.delta_p import delta_p, each_series, summarise, tidy
from deltap.probe import reference_layer
from deltap.settings import BootstrapSettings, DeltaPStage
from deltap.tables import ANCHORS, DELTA_P

# Three samples, two layers: (p_clean, p_knockout) of truthful.
PROBABILITIES = {
    "flips at both": [(0.9, 0.2), (0.8, 0.1)],
    "flips at 1": [(0.7, 0.6), (0.3, 0.9)],
    "never flips": [(0.2, 0.1), (0.4, 0.45)],
}
LABELS = {"flips at both": "truthful", "flips at 1": "truthful", "never flips": "hallucinated"}
K_STAR = 0


@pytest.fixture
def anchors():
    rows = []
    for question, layers in PROBABILITIES.items():
        flips = [(clean >= 0.5) != (knockout >= 0.5) for clean, knockout in layers]
        for layer, (clean, knockout) in enumerate(layers):
            rows.append(
                {
                    "model": "m", "dataset": "d", "extractor": "auto", "site": "attn", "position": "last",
                    "layer": layer, "question_id": question, "label": LABELS[question],
                    "p_clean": clean, "p_knockout": knockout,
                    "predicted": "truthful" if clean >= 0.5 else "hallucinated",
                    "predicted_knockout": "truthful" if knockout >= 0.5 else "hallucinated",
                    "flips": flips[layer], "k_star": K_STAR,
                    "anchor_reference": "q_anchored" if flips[K_STAR] else "a_anchored",
                }
            )  # fmt: skip
    return pa.Table.from_pylist(rows, ANCHORS)


def rows_of(anchors, anchor, reference_class="predicted"):
    stage = DeltaPStage(anchor=anchor, groupings=("per_layer", "reference"), reference_class=reference_class)
    rows = tidy(anchors, stage).to_pylist()
    assert {row["anchor"] for row in rows} == {anchor}
    return {(row["grouping"], row["question_id"], row["layer"]): round(row["delta_p"], 4) for row in rows}


def test_per_layer_groups_are_those_of_the_flips_at_each_layer(anchors):
    found = rows_of(anchors, "q_anchored")
    assert {key[1:] for key in found if key[0] == "per_layer"} == {
        ("flips at both", 0),
        ("flips at both", 1),
        ("flips at 1", 1),
    }


def test_reference_groups_are_fixed_over_layers(anchors):
    found = rows_of(anchors, "q_anchored")
    assert {key[1:] for key in found if key[0] == "reference"} == {("flips at both", 0), ("flips at both", 1)}


def test_every_sample_has_one_anchor_at_each_layer_and_grouping(anchors):
    q, a = rows_of(anchors, "q_anchored"), rows_of(anchors, "a_anchored")
    assert not set(q) & set(a)
    assert len(q) + len(a) == 2 * len(anchors)


def test_delta_p_of_the_predicted_class(anchors):
    found = rows_of(anchors, "q_anchored") | rows_of(anchors, "a_anchored")
    assert found["per_layer", "flips at both", 0] == -70  # 100 (0.2 - 0.9)
    assert found["per_layer", "flips at 1", 1] == -60  # predicted hallucinated: 100 (0.1 - 0.7)
    assert found["per_layer", "never flips", 0] == 10  # predicted hallucinated: 100 (0.9 - 0.8)


@pytest.mark.parametrize(
    ("reference_class", "expected"),
    [
        ("truthful", 60),  # 100 (0.9 - 0.3)
        ("gold", 60),  # labelled truthful
        ("predicted", -60),
        ("predicted_at_reference", 60),  # predicted truthful at layer 0
    ],
)
def test_reference_classes(anchors, reference_class, expected):
    assert rows_of(anchors, "q_anchored", reference_class)["per_layer", "flips at 1", 1] == expected


def test_delta_p_of_a_predicted_class_lies_between_minus_100_and_50():
    clean, knockout = np.random.default_rng(0).random((2, 10_000))
    values = delta_p(clean, knockout, clean >= 0.5)
    assert values.min() >= -100
    assert values.max() <= 50
    flips = (clean >= 0.5) != (knockout >= 0.5)
    assert (values[flips] <= 0).all()


def test_no_change_is_zero():
    p = np.linspace(0, 1, 11)
    assert (delta_p(p, p, p >= 0.5) == 0).all()


def test_one_half_counts_as_truthful():
    assert predicted(np.array([0.49999, 0.5])).tolist() == ["hallucinated", "truthful"]
    assert anchor(np.array([False, True])).tolist() == ["a_anchored", "q_anchored"]


def test_reference_layer_is_the_best_and_the_lowest_of_equals():
    assert reference_layer([0, 1, 2, 3], [0.5, 0.8, 0.8, 0.7]) == 1


def table(anchors):
    stages = [
        DeltaPStage(anchor=anchor, groupings=("per_layer", "reference"), reference_class="predicted")
        for anchor in ("q_anchored", "a_anchored")
    ]
    return pa.concat_tables([tidy(anchors, stage) for stage in stages])


def test_summary_has_n_and_mean_of_every_group_at_every_layer(anchors):
    rows = summarise(table(anchors), BootstrapSettings(draws=50)).to_pylist()
    found = {(row["grouping"], row["anchor"], row["layer"]): (row["n"], row["mean"]) for row in rows}
    assert len(rows) == 2 * 2 * 2
    assert found["per_layer", "q_anchored", 0] == (1, pytest.approx(-70))
    assert found["per_layer", "q_anchored", 1] == (2, pytest.approx(-65))
    assert found["reference", "q_anchored", 1] == (1, pytest.approx(-70))
    assert found["per_layer", "a_anchored", 1] == (1, pytest.approx(-5))
    assert all(row["ci_low"] is None for row in rows if row["n"] < 2)


def test_summary_of_a_group_without_samples_has_n_0(anchors):
    calm = anchors.filter(pc.equal(anchors["question_id"], "never flips"))
    rows = summarise(table(calm), BootstrapSettings(draws=50)).to_pylist()
    assert {row["n"] for row in rows if row["anchor"] == "a_anchored"} == {1}
    assert {(row["n"], row["mean"]) for row in rows if row["anchor"] == "q_anchored"} == {(0, None)}


def test_several_draws_of_a_control_are_pooled(anchors):
    own = table(anchors).to_pandas().assign(intervention="noise")
    again = own.assign(draw=1, delta_p=own["delta_p"] - 10)
    drawn = pa.Table.from_pandas(pd.concat([own, again]), DELTA_P, preserve_index=False)
    rows = summarise(drawn, BootstrapSettings(draws=50)).to_pylist()
    found = {(row["grouping"], row["anchor"], row["layer"]): (row["n"], row["mean"]) for row in rows}
    assert found["per_layer", "q_anchored", 1] == (2, pytest.approx(-70))  # -65 and -75, of two samples in each draw


def test_a_simultaneous_band_is_wider(anchors):
    random = np.random.default_rng(0)
    rows = [
        {**row, "question_id": f"{row['question_id']} {number}", "p_knockout": random.random()}
        for row in anchors.to_pylist()
        for number in range(20)
    ]
    many = table(pa.Table.from_pylist(rows, ANCHORS))
    widths = []
    for over_layers in ("pointwise", "simultaneous"):
        found = summarise(many, BootstrapSettings(draws=200, over_layers=over_layers)).to_pandas()
        widths.append((found["ci_high"] - found["ci_low"]).to_numpy())
    assert (widths[1] > widths[0]).mean() > 0.9


def test_series_are_put_together_from_parts(anchors):
    other = pa.Table.from_pylist([{**row, "dataset": "e"} for row in anchors.to_pylist()], ANCHORS)
    parts = [table(anchors)[:3], table(anchors)[3:], table(other)]
    series = list(each_series(parts))
    assert [set(part["dataset"].to_pylist()) for part in series] == [{"d"}, {"e"}]
    assert sum(map(len, series)) == sum(map(len, parts))
    assert series[0].schema.names == DELTA_P.names
