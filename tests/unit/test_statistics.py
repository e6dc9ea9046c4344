"""The bootstrap against scipy's, and small groups."""

import numpy as np
import pytest
from scipy import stats

from deltap.settings import BootstrapSettings
from deltap.statistics import (
    Resampled,
    group_mean,
    holm,
    max_t,
    null_share,
    percentile_interval,
    resampling_counts,
    simultaneous_band,
)

SETTINGS = BootstrapSettings(draws=20_000)
VALUES = np.random.default_rng(1).normal(-40, 15, size=(60, 3))


def test_interval_of_all_samples_is_that_of_scipy():
    counts = resampling_counts(60, SETTINGS)
    n, mean, low, high = group_mean(VALUES, np.ones_like(VALUES, dtype=bool), counts, 0.95)
    for layer in range(3):
        expected = stats.bootstrap(
            (VALUES[:, layer],), np.mean, n_resamples=20_000, method="percentile", random_state=2
        ).confidence_interval
        assert n[layer] == 60
        assert mean[layer] == pytest.approx(VALUES[:, layer].mean())
        assert (low[layer], high[layer]) == pytest.approx(tuple(expected), abs=0.25)


def test_interval_of_a_group_is_that_of_scipy_for_the_ratio():
    member = np.random.default_rng(3).random((60, 3)) < 0.4
    _, mean, low, high = group_mean(VALUES, member, resampling_counts(60, SETTINGS), 0.95)

    def ratio(values, inside, axis):
        return (values * inside).sum(axis) / inside.sum(axis)

    for layer in range(3):
        expected = stats.bootstrap(
            (VALUES[:, layer], member[:, layer].astype(float)),
            ratio,
            paired=True,
            n_resamples=20_000,
            method="percentile",
            random_state=4,
        ).confidence_interval
        assert mean[layer] == pytest.approx(VALUES[member[:, layer], layer].mean())
        assert (low[layer], high[layer]) == pytest.approx(tuple(expected), abs=0.5)


def test_small_groups_have_no_interval():
    member = np.zeros((60, 3), dtype=bool)
    member[0, 1] = True
    member[:2, 2] = True
    n, mean, low, high = group_mean(VALUES, member, resampling_counts(60, SETTINGS), 0.95)
    assert n.tolist() == [0, 1, 2]
    assert np.isnan(mean[0])
    assert mean[1] == pytest.approx(VALUES[0, 1])
    assert np.isnan([low[0], low[1], high[0], high[1]]).all()
    assert sorted([low[2], high[2]]) == pytest.approx(sorted(VALUES[:2, 2]))


def test_draws_depend_on_the_seed_alone():
    assert (resampling_counts(30, SETTINGS) == resampling_counts(30, SETTINGS)).all()
    other = BootstrapSettings(draws=20_000, seed=1)
    assert (resampling_counts(30, SETTINGS) != resampling_counts(30, other)).any()
    assert (resampling_counts(30, SETTINGS).sum(axis=1) == 30).all()


def curves(samples, layers, generator, effect=0.0):
    """Samples whose layers go together, as activations of neighbouring layers do."""
    steps = generator.normal(size=(samples, layers))
    values = np.empty_like(steps)
    values[:, 0] = steps[:, 0]
    for layer in range(1, layers):
        values[:, layer] = 0.7 * values[:, layer - 1] + np.sqrt(1 - 0.7**2) * steps[:, layer]
    return effect + values


def resampled(values, counts):
    return Resampled(values.mean(axis=0), counts @ values / len(values))


def test_a_simultaneous_band_covers_the_whole_curve_as_often_as_it_says_and_pointwise_ones_do_not():
    generator, trials, everyone = np.random.default_rng(5), 400, np.ones((300, 20))
    counts = resampling_counts(300, BootstrapSettings(draws=1000))
    covered = {"pointwise": 0, "simultaneous": 0}
    for _ in range(trials):
        values = curves(300, 20, generator)
        for kind in covered:
            _, _, low, high = group_mean(values, everyone, counts, 0.95, kind)
            covered[kind] += bool(((low <= 0) & (high >= 0)).all())
    assert covered["simultaneous"] / trials == pytest.approx(0.95, abs=0.03)
    assert covered["pointwise"] / trials < 0.75


def test_max_t_keeps_the_error_over_all_layers_and_finds_the_layer_that_differs():
    generator, trials = np.random.default_rng(6), 400
    counts = resampling_counts(300, BootstrapSettings(draws=1000))
    effect = np.where(np.arange(20) == 7, 0.4, 0.0)
    wrong, right, elsewhere = 0, 0, 0
    for _ in range(trials):
        p = max_t(*resampled(curves(300, 20, generator), counts))
        wrong += bool((p <= 0.05).any())
        p = max_t(*resampled(curves(300, 20, generator, effect), counts))
        right += bool(p[7] <= 0.05)
        elsewhere += bool((np.delete(p, 7) <= 0.05).any())
    assert wrong / trials == pytest.approx(0.05, abs=0.03)
    assert elsewhere / trials < 0.1
    assert right / trials > 0.95


def test_the_band_excludes_zero_where_max_t_is_small():
    counts = resampling_counts(80, BootstrapSettings(draws=999))
    effect = np.linspace(0, 0.8, 15)
    for seed in range(20):
        curve = resampled(curves(80, 15, np.random.default_rng(seed), effect), counts)
        low, high = simultaneous_band(*curve, level=0.95)
        p = max_t(*curve)
        outside = (low > 0) | (high < 0)
        assert (outside == (p <= 0.05)).all() or abs(p[outside != (p <= 0.05)] - 0.05).max() <= 0.002


def test_one_layer_alone_has_the_usual_interval():
    counts = resampling_counts(60, SETTINGS)
    curve = resampled(VALUES[:, :1], counts)
    low, high = simultaneous_band(*curve, level=0.95)
    assert (low[0], high[0]) == pytest.approx(tuple(v[0] for v in percentile_interval(curve.draws, 0.95)), abs=0.3)


def test_layers_that_do_not_vary_or_have_too_few_samples_do_not_touch_the_others():
    values = np.column_stack([VALUES, np.full(60, 3.0), np.zeros(60), VALUES[:, 0]])
    member = np.ones_like(values)
    member[1:, 5] = 0
    counts = resampling_counts(60, SETTINGS)
    _, _, low, high = group_mean(values, member, counts, 0.95, "simultaneous")
    alone = group_mean(VALUES, np.ones_like(VALUES), counts, 0.95, "simultaneous")
    np.testing.assert_allclose([low[:3], high[:3]], alone[2:])
    np.testing.assert_allclose([low[3:5], high[3:5]], [[3, 0], [3, 0]])
    assert np.isnan([low[5], high[5]]).all()
    curve = resampled(values[:, :5], counts)
    p = max_t(np.append(curve.estimate, np.nan), np.column_stack([curve.draws, curve.draws[:, 0]]))
    least = 1 / (1 + SETTINGS.draws)
    assert p[:5].tolist() == pytest.approx([least, least, least, least, 1])
    assert np.isnan(p[5])


def test_no_layer_that_varies_is_no_error():
    draws = np.tile([0.0, 5.0], (99, 1))
    assert max_t(np.array([0.0, 5.0]), draws).tolist() == [1, 0.01]
    low, high = simultaneous_band(np.array([0.0, 5.0]), draws, 0.95)
    assert [*low, *high] == [0, 5, 0, 5]
    assert np.isnan(simultaneous_band(np.array([np.nan]), np.full((9, 1), np.nan), 0.95)).all()
    assert np.isnan(max_t(np.array([np.nan]), np.full((9, 1), np.nan))).all()


def test_holm_is_that_of_the_textbook():
    np.testing.assert_allclose(holm([0.01, 0.04, 0.03, 0.005]), [0.03, 0.06, 0.06, 0.02])
    np.testing.assert_allclose(holm([np.nan, 0.04, 0.9]), [np.nan, 0.08, 0.9])
    assert holm([0.7]).tolist() == [0.7]


def test_few_draws_of_chance_cannot_make_a_small_p():
    assert null_share(9.0, np.arange(5)) == pytest.approx(1 / 6)
    assert null_share(3.0, np.arange(5)) == pytest.approx(3 / 6)
    assert null_share(3.0, np.array([np.nan, 1.0])) == pytest.approx(1 / 2)
    assert np.isnan(null_share(np.nan, np.arange(5)))
