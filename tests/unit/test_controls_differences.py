"""Differences between models and data sets, on tables whose answer is known."""

import numpy as np
import pyarrow as pa
import pytest

from deltap.controls.differences import differences, level, samples_by_dataset
from deltap.settings import BootstrapSettings, ControlSettings
from deltap.tables import DELTA_P

SETTINGS = ControlSettings(min_n=5)
DRAWS = BootstrapSettings(draws=400)
LAYERS = 4
OF_QUESTION = 20 * np.random.default_rng(0).normal(size=300)
"""What is a question's own, whatever model answers it."""


def series(model, dataset, shift=0.0, noise=0.5, ids=range(300), share_q=0.4, extractor="auto", anchors=None):
    """Return DELTA_P of a series: Q-Anchored at -50, A-Anchored at 0, each with the question's own and noise."""
    ids = np.array(list(ids))
    random = np.random.default_rng([*map(ord, model + dataset)])
    q = ids % 10 < 10 * share_q
    rows = []
    for layer in range(LAYERS):
        values = np.where(q, -50.0 + shift, 0.0) + OF_QUESTION[ids] + noise * random.normal(size=len(ids))
        for grouping in ("per_layer", "reference"):
            for name, value, flips in zip(ids, values, q, strict=True):
                anchor = "q_anchored" if flips else "a_anchored"
                if anchors is None or anchor in anchors:
                    rows.append(
                        {"model": model, "dataset": dataset, "extractor": extractor, "site": "attn",
                         "position": "exact_answer_last", "intervention": "exact_question", "estimate": "plain",
                         "draw": 0, "grouping": grouping, "anchor": anchor, "layer": layer, "question_id": f"q{name}",
                         "label": "truthful", "predicted": "truthful", "p_clean": 0.9, "p_knockout": 0.4,
                         "delta_p": value}
                    )  # fmt: skip
    return pa.Table.from_pylist(rows, DELTA_P)


def between(*tables):
    """Return the rows of DIFFERENCES of some series, by what they are of."""
    samples = samples_by_dataset(tables, SETTINGS)
    levels = [level(table, SETTINGS, DRAWS, samples[str(table["dataset"][0])]) for table in tables]
    rows = differences([each for each in levels if each], SETTINGS, 0.95).to_pylist()
    keys = ("model", "dataset", "other_model", "other_dataset", "statistic", "grouping")
    return {tuple(row[key] for key in keys): row for row in rows}


def test_the_difference_of_two_models_is_found():
    found = between(series("small", "nq"), series("large", "nq", shift=-10))
    for statistic in ("delta_p", "gap"):
        row = found["small", "nq", "large", "nq", statistic, "reference"]
        assert row["value"] == pytest.approx(10, abs=0.5)
        assert row["ci_low"] < 10.3
        assert row["ci_high"] > 9.7
        assert row["p"] < 0.02
    assert found["small", "nq", "large", "nq", "flip_rate", "reference"]["value"] == 0


def test_models_that_answered_the_same_questions_are_compared_on_them():
    """What is a question's own is in both, and so not in the interval of their difference; data sets share nothing."""
    found = between(series("small", "nq"), series("large", "nq"), series("small", "popqa"))
    paired = found["small", "nq", "large", "nq", "delta_p", "reference"]
    other = found["small", "nq", "small", "popqa", "delta_p", "reference"]
    width = {name: row["ci_high"] - row["ci_low"] for name, row in (("paired", paired), ("other", other))}
    assert width["paired"] < 0.5
    assert width["other"] > 4  # two means of 120 values with a standard deviation of 20


def test_a_question_that_one_model_lacks_is_drawn_for_the_other():
    found = between(series("small", "nq"), series("large", "nq", ids=range(200)))
    row = found["small", "nq", "large", "nq", "delta_p", "reference"]
    assert row["ci_low"] < row["value"] < row["ci_high"]
    assert 0.5 < row["ci_high"] - row["ci_low"] < 8


def test_numbers_do_not_depend_on_what_else_is_in_the_table():
    two = between(series("small", "nq"), series("large", "nq"))
    three = between(series("other", "nq"), series("small", "nq"), series("large", "nq"), series("small", "popqa"))
    key = ("small", "nq", "large", "nq", "gap", "per_layer")
    assert [two[key][name] for name in ("value", "ci_low", "ci_high")] == [
        three[key][name] for name in ("value", "ci_low", "ci_high")
    ]


def test_extractors_are_not_compared_with_each_other():
    assert not between(series("small", "nq"), series("large", "nq", extractor="rules"))


def test_of_one_anchor_only_its_own_mean_is_compared():
    """A run with one anchor has not all samples, and so neither gap nor flip rate."""
    found = between(*(series(model, "nq", anchors=("q_anchored",)) for model in ("small", "large")))
    assert {statistic for *_, statistic, _ in found} == {"delta_p"}
    assert not between(*(series(model, "nq", anchors=("a_anchored",)) for model in ("small", "large")))


def test_p_is_corrected_for_the_number_of_pairs():
    one = between(series("a", "nq"), series("b", "nq", shift=-1))
    more = between(series("a", "nq"), series("b", "nq", shift=-1), series("c", "nq"), series("d", "nq"))
    key = ("a", "nq", "b", "nq", "delta_p", "reference")
    assert more[key]["p"] == pytest.approx(min(1, 6 * one[key]["p"]))


def test_other_rows_of_the_table_are_not_the_methods_own():
    table = series("small", "nq")
    place = table.schema.get_field_index("estimate")
    other = table.set_column(
        place, "estimate", pa.array(["calibrated"] * len(table)).cast(DELTA_P.field("estimate").type)
    )
    assert samples_by_dataset([other], SETTINGS) == {}
    assert level(other, SETTINGS, DRAWS, {"q1"}) is None
