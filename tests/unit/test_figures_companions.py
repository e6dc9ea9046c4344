"""The companions of the main figure: each shows the numbers that its table says."""

import numpy as np
import pandas as pd
import pytest
from scipy.stats import binomtest

import synthetic
from deltap.errors import DeltapError
from deltap.figures.kinds import Content
from deltap.settings import (
    AurocFigure,
    BootstrapSettings,
    DistributionFigure,
    ExclusionsFigure,
    FlipRateFigure,
    GroupsFigure,
    PlotStage,
    TableSource,
    figure_kind,
)
from deltap.statistics import auroc_interval, share_interval
from deltap.tables import ANCHORS, PROBES, SAMPLES, write_table

STAGE = PlotStage(figures={}, bootstrap=BootstrapSettings(draws=50))
MODELS = {"qwen3-8b": 6, "qwen3-32b": 9}
DATASETS = ("popqa", "nq")


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """The tables of a small run."""
    folder = tmp_path_factory.mktemp("run")
    anchors = synthetic.anchors(25, MODELS, DATASETS)
    write_table(folder / "anchors.parquet", anchors, ANCHORS, synthetic.metadata())
    write_table(folder / "probes.parquet", synthetic.probes(MODELS, DATASETS), PROBES, synthetic.metadata())
    write_table(folder / "samples.parquet", synthetic.samples(50, DATASETS), SAMPLES, synthetic.metadata())
    return folder


def drawn(entry, run):
    return Content(entry, [TableSource(path=str(run))], STAGE).draw()


def anchors_of(run, model, dataset):
    table = pd.read_parquet(run / "anchors.parquet")
    return table[(table["model"] == model) & (table["dataset"] == dataset)]


def curve(figure, panel, name):
    (line,) = [line for line in figure.axes[panel].lines if line.get_label() == name]
    return line


def test_auroc_has_a_curve_for_each_data_set_and_a_line_at_chance(run):
    figure = drawn(AurocFigure(kind="auroc", split="validation"), run)
    assert [panel.get_title() for panel in figure.axes] == ["Qwen3-8B", "Qwen3-32B"]
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["PopQA", "NQ"]
    assert figure.axes[0].get_ylabel() == "AUROC (validation)"
    probes = pd.read_parquet(run / "probes.parquet").query(
        "model == 'qwen3-32b' and dataset == 'nq' and split == 'validation'"
    )
    np.testing.assert_allclose(curve(figure, 1, "NQ").get_ydata(), probes["auroc"])
    assert any(set(line.get_ydata()) == {0.5} for line in figure.axes[0].lines)


def test_auroc_without_one_class_is_a_gap(run, tmp_path):
    probes = synthetic.probes(MODELS, ("popqa",)).to_pandas()
    probes.loc[probes["layer"] == 2, ["auroc", "n_truthful"]] = [np.nan, 0]
    write_table(tmp_path / "probes.parquet", probes.to_dict("records"), PROBES, {})
    line = curve(drawn(AurocFigure(kind="auroc"), tmp_path), 0, "popqa")
    assert list(np.isnan(line.get_ydata())) == [False, False, True, False, False, False]


def test_flip_rate_is_the_share_of_samples_that_flip_at_each_layer(run):
    figure = drawn(FlipRateFigure(kind="flip_rate"), run)
    for panel, model in enumerate(MODELS):
        flips = anchors_of(run, model, "nq").groupby("layer")["flips"].mean()
        np.testing.assert_allclose(curve(figure, panel, "NQ").get_ydata(), 100 * flips)
    assert figure.axes[0].get_ylim()[0] == 0


def test_the_distribution_shows_each_sample_once_at_its_reference_layer(run):
    figure = drawn(DistributionFigure(kind="delta_p_distribution"), run)
    panel = figure.axes[0]
    rows = anchors_of(run, "qwen3-8b", "popqa")
    rows = rows[rows["layer"] == rows["k_star"]]
    sign = np.where(rows["predicted"] == "truthful", 1, -1)
    wanted = 100 * sign * (rows["p_knockout"].astype(float) - rows["p_clean"].astype(float))
    shown = [np.asarray(points.get_offsets())[:, 1] for points in panel.collections[:2]]
    np.testing.assert_allclose(np.sort(np.concatenate(shown)), np.sort(wanted), atol=1e-4)
    sizes = rows["anchor_reference"].value_counts()
    ticks = [tick.get_text() for tick in panel.get_xticklabels()][:2]
    assert ticks == [f"Q\n{sizes['q_anchored']}", f"A\n{sizes['a_anchored']}"]
    assert [tick.get_text() for tick in panel.get_xticklabels(minor=True)] == ["PopQA", "NQ"]


def test_another_reference_class_moves_the_distribution(run):
    figures = [
        drawn(DistributionFigure(kind="delta_p_distribution", reference_class=name), run)
        for name in ("truthful", "predicted")
    ]
    of = [np.concatenate([np.asarray(c.get_offsets())[:, 1] for c in figure.axes[0].collections]) for figure in figures]
    assert of[0].max() > 10 > of[1].max()


def test_groups_show_sizes_and_truthful_shares(run):
    panel = drawn(GroupsFigure(kind="groups"), run).axes[1]
    rows = anchors_of(run, "qwen3-32b", "popqa")
    rows = rows[rows["layer"] == 0]
    for index, anchor in enumerate(("q_anchored", "a_anchored")):
        group = rows[rows["anchor_reference"] == anchor]
        truthful = int((group["label"] == "truthful").sum())
        bars = panel.patches[2 * index : 2 * index + 2]
        assert [bar.get_height() for bar in bars] == [truthful, len(group) - truthful]
        assert panel.texts[index].get_text() == str(len(group))
        assert panel.get_xticklabels()[index].get_text() == f"{'QA'[index]}\n{100 * truthful / len(group):.0f}%"
    whole = 100 * (rows["label"] == "truthful").mean()
    assert panel.get_xticklabels(minor=True)[0].get_text() == f"PopQA\n{whole:.0f}%"


def test_a_group_without_samples_is_said_to_be_empty(tmp_path):
    table = synthetic.anchors(12, {"qwen3-8b": 4}, ("popqa",)).to_pandas()
    table = table[table["anchor_reference"] == "a_anchored"].assign(flips=False)
    write_table(tmp_path / "anchors.parquet", table.to_dict("records"), ANCHORS, {})
    for entry in (GroupsFigure(kind="groups"), DistributionFigure(kind="delta_p_distribution")):
        first = drawn(entry, tmp_path).axes[0].get_xticklabels()[0].get_text()
        assert first in ("Q\n–", "Q\n0")
    flips = drawn(FlipRateFigure(kind="flip_rate"), tmp_path)
    assert set(curve(flips, 0, "popqa").get_ydata()) == {0}


def test_exclusions_count_each_reason_of_the_questions_asked(run):
    figure = drawn(ExclusionsFigure(kind="exclusions"), run)
    panel = figure.axes[0]
    assert [text.get_text() for text in panel.texts] == ["0 of 50", "6 of 50"]
    assert [text.get_text() for text in figure.legends[0].get_texts()] == [
        "abstained", "no exact answer", "empty answer",
    ]  # fmt: skip
    assert sum(bar.get_width() for bar in panel.patches) == pytest.approx(100 * 6 / 50)


def test_nothing_left_out_is_a_figure_too(tmp_path):
    write_table(tmp_path / "samples.parquet", synthetic.samples(20, ("popqa",)), SAMPLES, {})
    figure = drawn(ExclusionsFigure(kind="exclusions"), tmp_path)
    assert [panel.texts[0].get_text() for panel in figure.axes] == ["0 of 20", "0 of 20"]


@pytest.mark.parametrize("kind", ["auroc", "flip_rate", "delta_p_distribution", "groups", "exclusions"])
def test_a_companion_of_a_table_without_rows_is_refused(tmp_path, kind):
    for name, schema in {"anchors": ANCHORS, "probes": PROBES, "samples": SAMPLES}.items():
        write_table(tmp_path / f"{name}.parquet", [], schema, {})
    with pytest.raises(DeltapError, match="no rows"):
        drawn(figure_kind({"kind": kind})(kind=kind), tmp_path)


def test_shares_have_wilsons_interval():
    hits, n = np.array([0, 3, 20, 0]), np.array([10, 10, 20, 0])
    low, high = share_interval(hits, n, 0.95)
    for index in range(3):
        wanted = binomtest(int(hits[index]), int(n[index])).proportion_ci(0.95, method="wilson")
        assert (low[index], high[index]) == pytest.approx((wanted.low, wanted.high))
    assert np.isnan([low[3], high[3]]).all()


def test_auroc_has_an_interval_that_covers_and_shrinks_with_the_samples():
    """Of two normal classes at a distance, against simulation."""
    generator = np.random.default_rng(0)
    n, found = 60, []
    for _ in range(300):
        a, b = generator.normal(1.0, size=n), generator.normal(size=n)
        found.append((a[:, None] > b[None, :]).mean())
    low, high = auroc_interval(np.array([np.mean(found)]), np.array([n]), np.array([n]), 0.95)
    assert (high - low)[0] == pytest.approx(2 * 1.96 * np.std(found), rel=0.15)
    lower, higher = auroc_interval(np.array([0.8]), np.array([4 * n]), np.array([4 * n]), 0.95)
    assert (higher - lower)[0] < (high - low)[0]
    assert np.isnan(auroc_interval(np.array([np.nan]), np.array([0]), np.array([5]), 0.95)).all()
