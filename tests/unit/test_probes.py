"""Probes on data whose answer is known."""

import re

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.class_weight import compute_sample_weight

from deltap.probe import Probe
from deltap.probes import balanced_log_loss, fit, fit_layers, lacking_class, untrained
from deltap.settings import SPLITS, ProbeSettings
from deltap.tensors import ActivationFiles, write_activations

SETTINGS = ProbeSettings()


def data(samples=200, hidden=8, seed=0):
    generator = np.random.default_rng(seed)
    x = generator.normal(5, [1, 10, 0.1, 1, 1, 1, 1, 1], size=(samples, hidden))
    y = x[:, 0] + 0.3 * (x[:, 1] - 5) / 10 + 0.5 * generator.normal(size=samples) > 5.5
    return x, y


def test_a_logistic_probe_is_scikit_learns_on_standardised_features():
    x, y = data()
    reference = make_pipeline(StandardScaler(), LogisticRegression(C=0.1, class_weight="balanced", max_iter=1000))
    expected = reference.fit(x, y).predict_proba(x)[:, 1]
    np.testing.assert_allclose(fit(x, y, (0.1,), SETTINGS)[0].probe.probability(x), expected, atol=1e-8)


def test_with_fewer_samples_than_features_it_is_the_same_probe():
    generator = np.random.default_rng(0)
    x, y = generator.normal(size=(40, 200)), np.arange(40) % 2 == 0
    reference = make_pipeline(StandardScaler(), LogisticRegression(C=0.01, class_weight="balanced", tol=1e-10))
    new = generator.normal(size=(30, 200))
    expected = reference.fit(x, y).predict_proba(new)[:, 1]
    np.testing.assert_allclose(fit(x, y, (0.01,), SETTINGS)[0].probe.probability(new), expected, atol=1e-4)


def test_log_loss_is_scikit_learns_with_balanced_weights():
    generator = np.random.default_rng(0)
    truthful, probability = generator.random(50) < 0.2, np.r_[0.0, 1.0, generator.random(48)]
    expected = log_loss(truthful, probability, sample_weight=compute_sample_weight("balanced", truthful))
    assert balanced_log_loss(truthful, probability) == pytest.approx(expected, rel=1e-12)


def test_an_mlp_probe_learns_what_no_line_separates():
    x = np.random.default_rng(0).normal(size=(400, 8))
    y = (x[:, 0] * x[:, 1]) > 0
    mlp = ProbeSettings(kind="mlp", regularisation=(0.01,))
    assert ((fit(x, y, (0.01,), mlp)[0].probe.probability(x) > 0.5) == y).mean() > 0.95
    assert ((fit(x, y, (1.0,), SETTINGS)[0].probe.probability(x) > 0.5) == y).mean() < 0.75


def test_probabilities_refer_to_equal_priors():
    x, y = data()
    rare = np.concatenate([np.flatnonzero(~y), np.flatnonzero(y)[:10]])
    probability = fit(x[rare], y[rare], (0.01,), SETTINGS)[0].probe.probability(x[rare])
    assert 0.35 < probability.mean() < 0.6  # and not 10 of all


@pytest.mark.parametrize("kind", ["logistic", "mlp"])
def test_a_probe_survives_its_file(kind):
    x, y = data()
    probe = fit(x, y, (0.1,), ProbeSettings(kind=kind))[0].probe
    np.testing.assert_array_equal(Probe.from_arrays(probe.arrays()).probability(x), probe.probability(x))


def test_constant_features_and_separable_classes_give_finite_probabilities():
    x = np.ones((40, 8))
    y = np.arange(40) % 2 == 0
    assert np.isfinite(fit(x, y, (1.0,), SETTINGS)[0].probe.probability(x)).all()
    x[:, 0] = y * 100
    assert ((fit(x, y, (1000.0,), SETTINGS)[0].probe.probability(x) > 0.5) == y).all()


def test_a_fit_that_does_not_converge_says_so():
    x, y = data()
    assert not fit(x, y, (1.0,), ProbeSettings(max_iterations=1))[0].converged
    assert fit(x, y, (1.0,), SETTINGS)[0].converged


def layers(tmp_path, count=3):
    x, y = data(120)
    states = torch.tensor(np.stack([x * (1 + layer) for layer in range(count)]), dtype=torch.float32)
    write_activations(tmp_path / "clean.attn.last.safetensors", [states], {})
    rows = {split: np.arange(index * 40, index * 40 + 40) for index, split in enumerate(SPLITS)}
    return ActivationFiles([tmp_path / "clean.attn.last.safetensors"]), rows, {s: y[r] for s, r in rows.items()}


def test_the_number_of_jobs_changes_nothing(tmp_path):
    one = fit_layers(*layers(tmp_path), SETTINGS, jobs=1)
    two = fit_layers(*layers(tmp_path), SETTINGS, jobs=2)
    for (a, scores_a), (b, scores_b) in zip(one, two, strict=True):
        assert all((p == q).all() for p, q in zip(a.probe.weights, b.probe.weights, strict=True))
        assert scores_a == scores_b


def test_all_layers_have_the_regularisation_of_the_lowest_mean_validation_log_loss(tmp_path):
    files, rows, truthful = layers(tmp_path)
    means = {}
    for value in SETTINGS.regularisation:
        fits = fit_layers(files, rows, truthful, ProbeSettings(regularisation=(value,)), jobs=1)
        means[value] = np.mean([s["log_loss"] for _, scores in fits for s in scores if s["split"] == "validation"])
    chosen = {found.regularisation for found, _ in fit_layers(files, rows, truthful, SETTINGS, jobs=1)}
    assert chosen == {min(means, key=lambda value: (means[value], value))}


def test_scores_name_split_and_counts(tmp_path):
    files, rows, truthful = layers(tmp_path)
    _, scores = fit_layers(files, rows, truthful, SETTINGS, jobs=1)[0]
    assert [score["split"] for score in scores] == list(SPLITS)
    for score in scores:
        assert score["n_truthful"] == truthful[score["split"]].sum()
        assert 0.7 < score["auroc"] <= 1
        assert 0 < score["log_loss"] < np.log(2)


@pytest.mark.parametrize("split", ["train", "validation"])
@pytest.mark.parametrize(("value", "advice"), [(True, "harder"), (False, "easier")])
def test_a_split_of_one_class_has_no_probe_and_the_reason_has_counts_and_advice(split, value, advice):
    truthful = {name: np.array([True, False, True]) for name in SPLITS}
    assert lacking_class(truthful) is None
    truthful[split] = np.array([value] * 3)
    assert re.match(rf"the {split} split has .*3 .*{advice} questions", lacking_class(truthful))
    scores = untrained(2, truthful)
    assert [(score["layer"], score["split"]) for score in scores] == [(layer, s) for layer in range(2) for s in SPLITS]
    assert all(score["n_truthful"] == truthful[score["split"]].sum() for score in scores)
