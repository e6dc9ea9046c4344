"""The statistics of the controls, on data whose answer is known."""

import numpy as np
import pyarrow as pa
import pytest

import effect
from deltap.anchors import anchor
from deltap.controls.bimodality import component, dip, gain_of_two, kappa, threshold
from deltap.controls.classes import reweighted_difference, reweighted_gap
from deltap.controls.compare import Bootstrap, deeper_half
from deltap.controls.cuts import alike, dose, heads, windows
from deltap.controls.estimates import Estimates
from deltap.controls.findings import findings
from deltap.controls.measured import Cut
from deltap.controls.probabilities import probabilities
from deltap.controls.regrouping import by_chance, majority
from deltap.controls.rows import Rows
from deltap.settings import BootstrapSettings, ControlSettings, ControlsStage, ProbeSettings, WindowSettings
from deltap.tables import ANCHORS, CONTROLS

DRAWS = BootstrapSettings(draws=200)
CONSTANTS = {"model": "m", "dataset": "d", "extractor": "auto", "site": "attn", "position": "exact_answer_last"}


# The bootstrap.


def test_a_mean_is_that_of_the_members_over_all_draws():
    values = np.array([[[1.0, 2.0, 3.0]], [[10.0, np.nan, 30.0]]])  # (draws, layers, samples)
    member = np.array([[[True, True, False]], [[True, True, True]]])
    curve = Bootstrap.seeded(3, DRAWS).mean(values, member)
    assert curve.resampled.estimate.tolist() == [pytest.approx((1 + 2 + 10 + 30) / 4)]
    assert curve.n.tolist() == [2]  # the same number in both draws


def test_a_group_of_too_few_has_no_estimate():
    bootstrap = Bootstrap.seeded(20, DRAWS, min_n=5)
    values = np.ones((1, 2, 20))
    member = np.zeros((1, 2, 20), dtype=bool)
    member[0, 0, :5], member[0, 1, :4] = True, True
    curve = bootstrap.mean(values, member)
    assert np.isfinite(curve.resampled.estimate).tolist() == [True, False]
    assert np.isnan(curve.interval(0.95)[0]).tolist() == [False, True]
    assert curve.over(slice(0, 2)).resampled.estimate.tolist() == [1]
    assert np.isnan(curve.over(slice(1, 2)).resampled.estimate).all()


def test_what_both_have_in_common_is_not_in_the_interval_of_the_difference():
    """The same samples are in the same draws."""
    random = np.random.default_rng(0)
    shared = 50 * random.normal(size=(1, 1, 400))
    everybody = np.ones(shared.shape, dtype=bool)
    bootstrap = Bootstrap.seeded(400, DRAWS)
    one, other = (bootstrap.mean(shared + add, everybody) for add in (random.normal(size=shared.shape), 1.0))
    low, high = (one - other).interval(0.95)
    assert high - low < 0.3
    assert low < -1 < high


def test_chance_among_a_controls_draws_is_in_the_interval():
    values = np.repeat(np.array([0.0, 10.0, 20.0, 30.0])[:, None, None], 500, axis=2)  # no chance among samples
    curve = Bootstrap.seeded(500, DRAWS).mean(values, np.ones(values.shape, dtype=bool))
    low, high = curve.interval(0.95)
    assert curve.resampled.estimate == pytest.approx(15)
    assert low < 8
    assert high > 22


@pytest.mark.parametrize("number", [2, 3, 5])
def test_few_draws_of_a_control_do_not_understate_chance(number):
    """The variance of the mean of D draws is s² / D with s² their unbiased variance."""
    levels = np.random.default_rng(number).normal(size=number)
    values = np.repeat(levels[:, None, None], 50, axis=2)
    curve = Bootstrap.seeded(50, BootstrapSettings(draws=20_000)).mean(values, np.ones(values.shape, dtype=bool))
    assert curve.resampled.draws.var() == pytest.approx(levels.var(ddof=1) / number, rel=0.05)
    assert curve.resampled.estimate == pytest.approx(levels.mean())


def test_both_halves_of_a_draw_are_drawn_together():
    values = np.array([0.0, 10.0, 4.0, 6.0])[:, None, None] * np.ones((4, 1, 30))  # two draws of the same mean
    bootstrap = Bootstrap.seeded(30, DRAWS)
    everybody = np.ones(values.shape, dtype=bool)
    assert bootstrap.mean(values, everybody, together=2).resampled.draws == pytest.approx(5)
    assert bootstrap.mean(values[:2], everybody[:2], together=2).resampled.draws == pytest.approx(5)
    assert bootstrap.mean(values, everybody).resampled.draws.std() > 0.5


def test_the_standard_deviation_is_that_of_all_samples_and_draws():
    values = np.random.default_rng(0).normal(7, 3, (2, 1, 400))
    curve = Bootstrap.seeded(400, DRAWS).deviation(values)
    assert curve.resampled.estimate == pytest.approx(values.std())
    low, high = curve.interval(0.95)
    assert low < 3 < high


def test_intervals_cover_the_truth_as_often_as_they_say():
    random, hits = np.random.default_rng(0), []
    bootstrap = Bootstrap.seeded(80, DRAWS)
    for _ in range(300):
        low, high = bootstrap.mean(random.normal(3, 2, (1, 1, 80)), np.ones((1, 1, 80), dtype=bool)).interval(0.95)
        hits.append(low[0] <= 3 <= high[0])
    assert np.mean(hits) == pytest.approx(0.95, abs=0.03)


def test_the_deeper_half():
    assert [list(range(layers))[deeper_half(layers)] for layers in (2, 5)] == [[1], [2, 3, 4]]


# Class.


def test_groups_that_differ_in_class_alone_have_no_gap_after_reweighting():
    random = np.random.default_rng(0)
    truthful = random.random((1, 3, 4000)) < 0.5
    q = random.random(truthful.shape) < np.where(truthful, 0.5, 0.05)  # flips are mostly those called truthful
    values = np.where(truthful, -40.0, 5.0) + random.normal(size=truthful.shape)
    bootstrap = Bootstrap.seeded(4000, DRAWS)
    plain = bootstrap.mean(values, q) - bootstrap.mean(values, ~q)
    gaps = [bootstrap.mean(values, q & c) - bootstrap.mean(values, ~q & c) for c in (truthful, ~truthful)]
    reweighted, covered = reweighted_gap(gaps, [bootstrap.share(c) for c in (truthful, ~truthful)])
    assert (plain.resampled.estimate < -20).all()
    assert reweighted.resampled.estimate == pytest.approx(0, abs=0.3)
    assert covered == pytest.approx(100)
    low, high = reweighted.band(0.99)
    assert (low < 0).all()
    assert (high > 0).all()


def test_a_gap_within_each_class_stays():
    random = np.random.default_rng(0)
    truthful = random.random((1, 1, 4000)) < 0.3
    q = random.random(truthful.shape) < 0.5
    values = np.where(q, np.where(truthful, -30.0, -10.0), 0.0)
    bootstrap = Bootstrap.seeded(4000, DRAWS)
    gaps = [bootstrap.mean(values, q & c) - bootstrap.mean(values, ~q & c) for c in (truthful, ~truthful)]
    found, covered = reweighted_gap(gaps, [bootstrap.share(c) for c in (truthful, ~truthful)])
    share = truthful.mean()
    assert found.resampled.estimate == pytest.approx(share * -30 + (1 - share) * -10)
    assert covered == pytest.approx(100)


def test_a_class_that_a_group_lacks_is_left_out():
    truthful = np.arange(100)[None, None] % 2 == 0
    q = truthful & (np.arange(100) < 50)
    bootstrap = Bootstrap.seeded(100, DRAWS, min_n=5)
    values = np.where(q, -7.0, 1.0)
    gaps = [bootstrap.mean(values, q & c) - bootstrap.mean(values, ~q & c) for c in (truthful, ~truthful)]
    found, covered = reweighted_gap(gaps, [bootstrap.share(c) for c in (truthful, ~truthful)])
    assert found.resampled.estimate == pytest.approx(-8)
    assert covered == pytest.approx(50)


def test_the_difference_of_two_cuts_is_over_the_classes_that_both_have():
    truthful = np.arange(200)[None, None] % 2 == 0
    bootstrap = Bootstrap.seeded(200, DRAWS, min_n=5)
    values = np.where(truthful, -40.0, -20.0)  # under both cuts, whoever flips

    def of(q):
        flipped = np.where(q, values, 0.0)
        gaps = [bootstrap.mean(flipped, q & c) - bootstrap.mean(flipped, ~q & c) for c in (truthful, ~truthful)]
        return gaps, [bootstrap.share(c) for c in (truthful, ~truthful)]

    in_both, in_one = np.arange(200)[None, None] < 60, truthful & (np.arange(200) < 60)
    apart = reweighted_gap(*of(in_both))[0] - reweighted_gap(*of(in_one))[0]
    assert apart.resampled.estimate == pytest.approx(10)
    difference, covered = reweighted_difference(*of(in_both), *of(in_one))
    assert difference.resampled.estimate == pytest.approx(0)
    assert np.nanmax(np.abs(difference.resampled.draws)) == pytest.approx(0)
    assert covered == pytest.approx(50)


# Two groups or one?


@pytest.fixture(scope="module")
def one_group():
    return np.random.default_rng(0).normal(-10, 5, 400)


@pytest.fixture(scope="module")
def two_groups():
    random = np.random.default_rng(0)
    return np.concatenate([random.normal(-60, 6, 120), random.normal(0, 4, 280)])


def test_one_and_two_groups_are_told_apart(one_group, two_groups):
    assert dip(two_groups) > 3 * dip(one_group)
    assert gain_of_two(one_group, 0) < 0 < 10 < gain_of_two(two_groups, 0)


def test_a_threshold_and_a_mixture_find_the_groups(two_groups):
    below = np.arange(400) < 120
    assert -50 < threshold(two_groups) < -10
    assert ((two_groups < threshold(two_groups)) == below).mean() > 0.99
    assert (component(two_groups, 0) == below).mean() > 0.99


def test_the_threshold_is_the_best_of_all(one_group):
    def within(cut: float) -> float:
        groups = one_group[one_group < cut], one_group[one_group >= cut]
        return sum(len(group) * group.var() for group in groups if len(group))

    assert within(threshold(one_group)) == pytest.approx(min(within(cut) for cut in one_group))


def test_values_that_are_all_equal_are_one_group():
    same = np.full(50, -3.0)
    assert gain_of_two(same, 0) == 0
    assert not component(same, 0).any()
    assert np.isfinite(threshold(same))


def test_kappa_is_agreement_beyond_chance():
    random = np.random.default_rng(0)
    one, other = random.random((2, 20_000)) < 0.2
    assert kappa(one, one) == pytest.approx(1)
    assert kappa(one, other) == pytest.approx(0, abs=0.03)
    assert kappa(np.zeros(5, dtype=bool), np.zeros(5, dtype=bool)) is None
    assert kappa(np.ones(5, dtype=bool), np.zeros(5, dtype=bool)) == 0


# Regrouping.


def test_the_majority_and_who_agrees_with_it():
    flipped = np.array([[True, False, True], [True, False, False], [True, False, False], [True, True, True]])
    q, share = majority(flipped)
    assert q.tolist() == [True, False, True]
    assert share.tolist() == [1, 0.75, 0.5]


def test_by_chance_as_many_flip_at_each_layer_but_nobody_more_often():
    random = np.random.default_rng(0)
    often = np.arange(2000) < 400
    flipped = np.broadcast_to(often, (3, 10, 2000))
    dealt = by_chance(flipped, np.ones(flipped.shape, dtype=bool), random)
    assert (dealt.sum(axis=-1) == 400).all()
    assert majority(flipped)[1].mean() == 1
    assert majority(dealt)[1].mean() == pytest.approx(0.8, abs=0.02)
    assert majority(dealt)[0].mean() < 0.01  # hardly anybody is Q-Anchored at most layers


def test_by_chance_each_class_flips_as_often_as_before():
    """Where only one class flips, that alone makes the others stable, which is no agreement beyond class."""
    truthful = np.broadcast_to(np.arange(100) < 30, (1, 4, 100))
    flipped = truthful & (np.arange(100) % 2 == 0)
    dealt = by_chance(flipped, truthful, np.random.default_rng(0))
    assert (dealt & ~truthful).sum() == 0
    assert (dealt.sum(axis=-1) == 15).all()


# All of it, on the model of the effect.


@pytest.fixture(scope="module")
def series(tmp_path_factory):
    folder = tmp_path_factory.mktemp("series")
    measured, _ = effect.measured(folder, from_question=0.3, activation_noise=0.5)
    settings = ControlSettings(refits=3, permuted_labels=2, noise=2, strength=(0.01, 1.0), interventions=None)
    stage = ControlsStage(
        controls=settings, probe=ProbeSettings(), groupings=("per_layer", "reference"), reference_class="predicted",
        bootstrap=DRAWS,
    )  # fmt: skip
    found = probabilities(measured, settings)
    estimates = Estimates(measured, found, settings, "predicted")
    q = estimates.plain["reference"][0]
    rows = [
        {"site": site, "position": "exact_answer_last", "layer": layer, "question_id": str(name),
         "anchor_reference": str(anchor(np.array([flip]))[0])}
        for site in ("attn", "mlp") for layer in (0, 1) for name, flip in zip(measured.question_ids, q, strict=True)
    ]  # fmt: skip
    controls, table = findings(measured, found, stage, pa.Table.from_pylist(rows, ANCHORS), CONSTANTS)
    return estimates, controls, table


def value(table, control, statistic, **columns):
    """Return the one row of a mean over the deeper half."""
    frame = table.to_pandas()
    chosen = frame[(frame["control"] == control) & (frame["statistic"] == statistic) & frame["layer"].isna()]
    for name, wanted in columns.items():
        chosen = chosen[chosen[name].isna() if wanted is None else chosen[name] == wanted]
    assert len(chosen) == 1, chosen
    return chosen.iloc[0]


def test_the_table_has_each_statistic_once(series):
    _, _, table = series
    assert table.schema.names == CONTROLS.names
    frame = table.to_pandas()
    keys = ["control", "statistic", "grouping", "group", "layer", "at"]
    assert not frame.duplicated(keys).any()
    inner = frame[frame["ci_low"].notna() & (frame["control"] != "refits")]  # probes of refits are worse ones
    assert ((inner["ci_low"] <= inner["value"] + 1e-9) & (inner["value"] <= inner["ci_high"] + 1e-9)).mean() > 0.995


def test_stronger_probes_draw_deeper_curves_but_flip_alike(series):
    _, _, table = series
    weak, strong = (
        [value(table, "strength", name, at=at, **more)["value"] for name, more in
         (("delta_p", {"group": "q_anchored"}), ("flip_rate", {}))]
        for at in (0.01, 1.0)
    )  # fmt: skip
    assert strong[0] < weak[0] - 10
    assert strong[1] == pytest.approx(weak[1], abs=3)
    calibrated = [value(table, "strength calibrated", "delta_p", at=at)["value"] for at in (0.01, 1.0)]
    assert abs(calibrated[1] - calibrated[0]) < abs(strong[0] - weak[0]) / 2


def test_the_outer_bootstrap_is_about_the_same_estimate_and_less_sure(series):
    _, _, table = series
    inner = value(table, "exact_question", "gap", grouping="per_layer")
    outer = value(table, "refits", "gap", grouping="per_layer")
    assert outer["value"] == pytest.approx(inner["value"], abs=5)
    assert outer["ci_low"] < outer["value"] < outer["ci_high"]
    assert outer["ci_high"] - outer["ci_low"] > inner["ci_high"] - inner["ci_low"]


def test_the_same_anchors_at_another_site_agree(series):
    _, _, table = series
    assert value(table, "regrouping", "kappa", group="mlp, exact_answer_last")["value"] == pytest.approx(1)
    assert value(table, "regrouping", "agreement", group="layers")["value"] > value(
        table, "regrouping", "agreement by chance", group="layers"
    )["value"] + 3  # fmt: skip


def test_stable_samples_are_an_estimate_of_their_own(series):
    _, controls, table = series
    stable = next(each for each in controls if each.estimate == "stable_samples")
    measured = np.isfinite(stable.delta_p()[0, 0]).mean()
    assert 100 * measured == pytest.approx(value(table, "regrouping", "stable", group="layers")["value"])


# Other cuts.


def test_windows_and_heads_are_read_at_k_star(series):
    """A window's activations that equal the whole cut's at k* give its ΔP; a window that cuts nothing gives 0."""
    estimates, _, _ = series
    measured = estimates.measured
    k_star = measured.k_star

    class AtReference:
        layers = effect.LAYERS

        def layer(self, start):
            files = measured.cut.files if start == 3 else measured.clean
            where = measured.cut.rows if start == 3 else measured.rows["test"]
            return files.layer(k_star)[where]

    everybody = np.arange(measured.samples)
    object.__setattr__(measured, "interventions", {("window_4", 0): Cut(AtReference(), everybody),
                                                   ("heads", 0): Cut(AtReference(), everybody)})  # fmt: skip
    rows, bootstrap = Rows(CONSTANTS, 0.95), Bootstrap.seeded(measured.samples, DRAWS)
    windows(estimates, WindowSettings(), bootstrap, rows)
    heads(estimates, (5, 7, 9), bootstrap, rows)
    frame = rows.table().to_pandas()
    q = frame[frame["group"] == "q_anchored"]
    of_windows = q[q["control"] == "window_4"].set_index("layer")["value"]
    method = estimates.method()
    expected = method.delta_p()[0, k_star][method.q_anchored("reference")[0, 0]].mean()
    assert of_windows[3] == pytest.approx(expected, abs=1e-3)
    assert of_windows.drop(3).to_numpy() == pytest.approx(0, abs=1e-4)
    of_heads = q[q["control"] == "heads"].set_index(["layer", "at"])["value"]
    assert len(of_heads) == effect.LAYERS  # three layers of four heads
    assert of_heads[5, 3.0] == pytest.approx(expected, abs=1e-3)
    assert of_heads.drop((5, 3.0)).to_numpy() == pytest.approx(0, abs=1e-4)


def test_how_alike_the_cuts_are_is_counted_and_what_is_left_where_they_are(series):
    """Of two draws: samples whose masses are equal, and whose tokens are all of the question."""
    estimates, _, _ = series
    found, measured = estimates.found, estimates.measured
    count = measured.samples
    place = np.arange(count)
    equal, matched = place % 2 == 0, place % 4 == 0
    own = estimates.delta_p(found.clean, found.cut)
    sign = np.where(estimates.refers_to_truthful(found.clean), 1, -1)
    # Where the masses are equal the other cut takes 3 points less of ΔP, where all tokens are the question's 5 less.
    less = np.where(matched, 5.0, np.where(equal, 3.0, 100.0))
    cut = (found.clean + sign * (own + less) / 100)[None]
    rows = [
        {"question_id": name, "intervention": "random_tokens", "draw": draw, "tokens": [3, 5],
         "exact_question_tokens": 2, "from_question": 2 if matched[index] else 1,
         "exact_mass": 0.2, "mass": 0.2 * (1.05 if equal[index] else 1.3)}
        for draw in (0, 1) for index, name in enumerate(measured.question_ids)
    ]  # fmt: skip
    keys = [("random_tokens", draw) for draw in (0, 1)]
    object.__setattr__(measured, "table", pa.Table.from_pylist(rows))
    found.own.cuts.update(dict.fromkeys(keys, cut))
    try:
        table = Rows(CONSTANTS, 0.95)
        alike(estimates, Bootstrap.seeded(count, DRAWS), table)
    finally:
        object.__setattr__(measured, "table", None)
        for key in keys:
            del found.own.cuts[key]
    frame = table.table()
    for statistic, expected in (("tokens", 2), ("exact_tokens", 2), ("exact_mass", 20), ("mass", 23.5),
                                ("equal_mass", 50), ("matched", 25)):  # fmt: skip
        assert value(frame, "random_tokens", statistic)["value"] == pytest.approx(expected, abs=0.05)
    matches = value(frame, "random_tokens", "delta_p_difference", group="matched")
    assert matches["value"] == pytest.approx(-5, abs=0.01)
    assert matches["n"] == matched.sum()
    assert value(frame, "random_tokens", "delta_p_difference", group="equal_mass")["value"] == pytest.approx(
        -(5 * matched.sum() + 3 * (equal & ~matched).sum()) / equal.sum(), abs=0.01
    )


def test_how_far_a_cut_moves_the_probe_is_the_standard_deviation_of_the_logits_change(tmp_path):
    measured, _ = effect.measured(tmp_path, activation_noise=1.0, random_cuts=1, weaker=0.5)
    found = probabilities(measured, ControlSettings(permuted_labels=0, noise=0, refits=0, strength=()))
    exact, random = (np.mean(found.logit_change[key]) for key in (("exact_question", 0), ("random_tokens", 0)))
    assert random == pytest.approx(exact / 2, rel=0.1)
    probe = measured.probes[3]
    moved = probe.logit(measured.cut.at(3)) - probe.logit(measured.clean.layer(3)[measured.rows["test"]])
    assert found.logit_change["exact_question", 0][3] == pytest.approx(moved.std())


def test_a_larger_dose_flips_more(series):
    estimates, _, _ = series
    found = estimates.found
    part = {
        (f"dose_{tokens}", 0): (found.clean + share * (found.cut - found.clean))[None]
        for tokens, share in ((1, 0.2), (2, 0.6))
    }
    found.own.cuts.update(part)
    try:
        rows = Rows(CONSTANTS, 0.95)
        dose(estimates, Bootstrap.seeded(estimates.measured.samples, DRAWS), rows)
    finally:
        for key in part:
            del found.own.cuts[key]
    frame = rows.table().to_pandas()
    for statistic, group in (("flip_rate", None), ("delta_p", "q_anchored")):
        chosen = frame[
            (frame["statistic"] == statistic) & (frame["group"].isna() if group is None else frame["group"] == group)
        ]
        assert chosen["at"].tolist() == [1, 2, pytest.approx(np.nan, nan_ok=True)]
        size = chosen["value"].abs().tolist()
        assert size == sorted(size)
