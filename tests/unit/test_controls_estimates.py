"""What each estimator removes and what stays, on a model of the effect whose truth is known (tests/effect.py)."""

from functools import cache

import numpy as np
import pytest
from scipy.special import expit

import effect
from deltap.controls.estimates import Estimated, Estimates, farther_layers, flips, groups, rows
from deltap.controls.probabilities import halves, noise, probabilities, strength_for, temperature
from deltap.settings import ANCHORS, ControlSettings, ProbeSettings
from deltap.tables import DELTA_P
from effect import gap

SETTINGS = ControlSettings(refits=0, strength=(), permuted_labels=3, noise=3, interventions=None)


@pytest.fixture(scope="module")
def estimates(tmp_path_factory):
    """Return a function from a model of the effect to its estimates by name, and who is anchored in the question."""

    @cache
    def of(**model: float) -> tuple[dict[str, Estimated], np.ndarray]:
        measured, questioned = effect.measured(tmp_path_factory.mktemp("effect"), **model)
        found = Estimates(measured, probabilities(measured, SETTINGS), SETTINGS, "predicted")
        return {each.name: each for each in [found.method(), *found.controls()]}, questioned

    return of


def rate(estimated: Estimated) -> float:
    """Return the share of samples that flip."""
    return float(estimated.q_anchored("per_layer").mean())


PROBE_NOISE, ACTIVATION_NOISE, EFFECT = {"probe_noise": 1.5}, {"activation_noise": 1.5}, {"from_question": 0.3}


@pytest.mark.parametrize("nothing", [PROBE_NOISE, ACTIVATION_NOISE])
def test_selection_alone_draws_a_dichotomy_per_layer(estimates, nothing):
    """No evidence flows from the question, and still the curve of the method falls to -50."""
    found, _ = estimates(**nothing)
    assert gap(found["exact_question"]) < -50


def test_permuted_labels_draw_the_same_picture_from_what_probes_learn_by_chance(estimates):
    found, _ = estimates(**PROBE_NOISE)
    assert gap(found["permuted_labels"]) == pytest.approx(gap(found["exact_question"]), abs=6)
    assert rate(found["permuted_labels"]) > 1.5 * rate(found["exact_question"])


def test_noise_instead_of_a_cut_draws_the_same_picture(estimates):
    found, _ = estimates(**ACTIVATION_NOISE)
    assert gap(found["noise"]) == pytest.approx(gap(found["exact_question"]), abs=8)
    # Whoever flips under the cut has no more to do with the noise than others have.
    assert gap(found["noise same_groups"]) == pytest.approx(0, abs=4)


def test_cross_fitting_removes_what_probes_learn_by_chance(estimates):
    found, _ = estimates(**PROBE_NOISE)
    assert gap(found["cross_fitted"]) == pytest.approx(0, abs=4)


def test_cross_fitting_does_not_remove_noise_of_the_activation_itself(estimates):
    """Both halves' probes read the same activation."""
    found, _ = estimates(**ACTIVATION_NOISE)
    assert gap(found["cross_fitted"]) < -15


@pytest.mark.parametrize("nothing", [PROBE_NOISE, ACTIVATION_NOISE])
def test_groups_of_farther_layers_remove_both(estimates, nothing):
    found, _ = estimates(**nothing)
    assert gap(found["leave_layers_out"], "reference") == pytest.approx(0, abs=4)


def test_the_grouping_reference_keeps_selection_at_its_own_layer_only(estimates, tmp_path):
    found, _ = estimates(**ACTIVATION_NOISE)
    method = found["exact_question"]
    q = method.q_anchored("reference")[0]
    by_layer = [method.delta_p()[0, k][q[k]].mean() - method.delta_p()[0, k][~q[k]].mean() for k in range(len(q))]
    assert min(by_layer) < -50
    assert np.median(by_layer) == pytest.approx(0, abs=5)


@pytest.mark.parametrize(
    ("name", "grouping", "kept"),
    [
        ("exact_question", "reference", 0.9),
        ("leave_layers_out", "reference", 0.9),
        ("cross_fitted", "reference", 0.7),  # half of the training samples make worse probes
        ("cross_fitted", "per_layer", 0.7),
    ],
)
def test_what_flows_from_the_question_stays(estimates, name, grouping, kept):
    """The truth is the gap between the samples whose evidence was turned around and the others."""
    found, questioned = estimates(**EFFECT)
    method = found["exact_question"].delta_p()[0]
    truth = method[:, questioned].mean() - method[:, ~questioned].mean()
    assert truth < -40
    assert gap(found[name], grouping) < kept * truth
    assert gap(found["noise same_groups"]) == pytest.approx(0, abs=4)


def test_leaving_layers_out_loses_nothing_of_a_true_effect_but_the_method_gains_by_selection(estimates):
    found, _ = estimates(from_question=0.3, activation_noise=1.0, probe_noise=1.0)
    assert gap(found["exact_question"]) < 2 * gap(found["leave_layers_out"], "reference") < -30


def test_calibration_changes_no_flip(estimates):
    found, _ = estimates(**EFFECT)
    method, calibrated = found["exact_question"], found["calibrated"]
    assert (calibrated.q_anchored("per_layer") == method.q_anchored("per_layer")).all()
    assert (np.sign(calibrated.delta_p()) == np.sign(method.delta_p())).all()


def test_rows_are_those_of_the_tidy_table(estimates, tmp_path):
    measured, _ = effect.measured(tmp_path)
    found = Estimates(measured, probabilities(measured, SETTINGS), SETTINGS, "predicted")
    constants = {"model": "m", "dataset": "d", "extractor": "auto", "site": "attn", "position": "last"}
    crossed = next(each for each in found.controls() if each.estimate == "cross_fitted")
    table = rows(crossed, measured, ("per_layer", "reference"), ANCHORS, constants).to_pandas()
    assert list(table.columns) == DELTA_P.names
    assert len(table) == 2 * 2 * effect.LAYERS * effect.SIZES["test"]  # draws, groupings
    assert set(table["estimate"]) == {"cross_fitted"}
    expected = 100 * (table["p_knockout"] - table["p_clean"]) * np.where(table["predicted"] == "truthful", 1, -1)
    assert table["delta_p"].to_numpy() == pytest.approx(expected.to_numpy(), abs=1e-3)
    assert not len(rows(crossed, measured, (), ANCHORS, constants))
    only = rows(crossed, measured, ("per_layer",), ("a_anchored",), constants).to_pandas()
    assert set(only["anchor"]) == {"a_anchored"}


def test_numbers_do_not_depend_on_the_number_of_processes(tmp_path):
    measured, _ = effect.measured(tmp_path, from_question=0.3)
    settings = SETTINGS.model_copy(update={"refits": 2, "strength": (0.1,)})
    one, two = (probabilities(measured, settings, jobs) for jobs in (1, 2))
    for name in ("permuted", "permuted_halves", "halves", "strengths", "strengths_calibrated", "refits"):
        assert (getattr(one, name).clean == getattr(two, name).clean).all()
        assert (getattr(one, name).auroc == getattr(two, name).auroc).all()
    assert all((np.array(one.under("noise")) == two.under("noise")).ravel())


def test_more_draws_begin_with_the_fewer(tmp_path):
    measured, _ = effect.measured(tmp_path)
    few, many = (
        probabilities(measured, SETTINGS.model_copy(update={"permuted_labels": number, "noise": number}))
        for number in (1, 2)
    )
    assert (many.permuted.clean[:1] == few.permuted.clean).all()
    assert (many.under("noise")[0] == few.under("noise")[0]).all()
    assert (many.permuted_halves.cut[:2] == few.permuted_halves.cut).all()
    assert (many.permuted.clean[0] != many.permuted.clean[1]).any()


def test_nothing_asked_for_is_nothing_computed(tmp_path):
    measured, _ = effect.measured(tmp_path)
    nothing = ControlSettings(
        permuted_labels=0, noise=0, cross_fitting=False, leave_layers_out=None, strength=(), refits=0
    )
    found = probabilities(measured, nothing)
    assert found.refits.clean.shape == (0, effect.LAYERS, effect.SIZES["test"])
    assert [each.name for each in Estimates(measured, found, nothing, "predicted").controls()] == ["calibrated"]


def test_halves_divide_each_class():
    truthful = np.random.default_rng(0).random(101) < 0.3
    one, two = halves(truthful)
    assert sorted([*one, *two]) == list(range(101))
    assert abs(truthful[one].sum() - truthful[two].sum()) <= 1
    assert abs(len(one) - len(two)) <= 2


def test_a_probe_of_the_doubled_samples_is_that_of_the_halved_strength():
    """The penalty weighs the same per sample."""
    from deltap.probes import fit

    random = np.random.default_rng(0)
    x, y = random.normal(size=(60, 5)), random.random(60) < 0.5
    settings = ProbeSettings()
    half = fit(x, y, [strength_for(0.5, settings, 0.1)], settings)[0].probe
    whole = fit(np.tile(x, (2, 1)), np.tile(y, 2), [0.1], settings)[0].probe
    assert half.weights[0] == pytest.approx(whole.weights[0], abs=1e-4)


def test_temperature_undoes_what_a_factor_did():
    random = np.random.default_rng(0)
    logits = random.normal(0, 1.5, 50_000)
    truthful = random.random(50_000) < expit(logits)
    assert temperature(truthful, logits) == pytest.approx(1, abs=0.06)
    assert temperature(truthful, 3 * logits) == pytest.approx(3, abs=0.2)
    # Also where probabilities would round to 0 and 1.
    assert temperature(truthful, 60 * logits) == pytest.approx(60, abs=4)


def test_temperature_of_one_class_is_1():
    assert temperature(np.ones(3, dtype=bool), np.array([-1.0, 2, 50])) == 1


def test_the_best_layer_outside_of_the_neighbourhood():
    aurocs = np.array([0.6, 0.9, 0.8, 0.7, 0.9])
    assert farther_layers(aurocs, 0).tolist() == [1, 4, 1, 1, 1]
    assert farther_layers(aurocs, 1).tolist() == [4, 4, 4, 1, 1]
    assert farther_layers(aurocs, 2).tolist() == [4, 4, -1, 0, 1]


def test_noise_has_half_the_variance_of_the_difference_between_layers():
    """Two layers that share one part and have as much of their own: the noise is that own part."""
    random = np.random.default_rng(0)
    shared = random.normal(size=(20_000, 3))
    scale = np.array([1.0, 5.0, 0.1])
    here, neighbour = (scale * (shared + 0.5 * random.normal(size=shared.shape)) for _ in range(2))
    noisy, other = noise(here, neighbour, [np.random.default_rng(seed) for seed in (1, 2)])
    assert (noisy - here).std(axis=0) == pytest.approx(0.5 * scale, rel=0.03)
    assert (noisy - here).mean(axis=0) == pytest.approx(0, abs=0.05)
    assert (noisy != other).any()


def test_noise_of_layers_that_say_the_same_is_nothing():
    x = np.random.default_rng(0).normal(size=(50, 4))
    x[:, 2] = 7  # a constant feature
    (noisy,) = noise(x, 3 * x + 1, [np.random.default_rng(0)])
    assert noisy == pytest.approx(x)


def test_a_sample_that_was_not_measured_does_not_flip():
    clean, cut = np.array([[0.9, 0.9, 0.4]]), np.array([[np.nan, 0.1, 0.3]])
    assert flips(clean, cut).tolist() == [[False, True, False]]
    assert groups(flips(clean, cut), 0)["reference"].tolist() == [[False, True, False]]


def test_a_class_of_one_training_sample_is_not_divided(tmp_path):
    measured, _ = effect.measured(tmp_path)
    only = measured.rows["train"][measured.truthful["train"]][:1]
    others = measured.rows["train"][~measured.truthful["train"]]
    measured.rows["train"] = np.concatenate([only, others])
    measured.truthful["train"] = np.arange(1 + len(others)) < 1
    found = probabilities(measured, SETTINGS)
    names = [each.name for each in Estimates(measured, found, SETTINGS, "predicted").controls()]
    assert "cross_fitted" not in names
    assert "permuted_labels" in names
