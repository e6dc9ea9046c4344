"""The bootstrap against scipy's, and small groups."""

import numpy as np
import pytest
from scipy import stats

from deltap.settings import BootstrapSettings
from deltap.statistics import group_mean, resampling_counts

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
