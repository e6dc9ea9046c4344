"""What controls give beside the method: the numbers of their table, read back from the figure; and what is refused."""

import json
import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from matplotlib.colors import to_hex
from pydantic import ValidationError

import synthetic
from deltap.errors import DeltapError
from deltap.figures.kinds import Content
from deltap.figures.variants import table_names
from deltap.run import Run
from deltap.settings import SAME_GROUPS, ControlsFigure, DeltaPFigure, PlotStage, TableSource
from deltap.tables import CONTROLS, SUMMARY, write_table

ROOT = Path(__file__).parents[2]
STAGE = PlotStage(figures={})
MODELS = {"qwen3-8b": 6, "qwen3-32b": 9}
DATASETS = ("popqa", "nq")


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    """The controls of a small run."""
    path = tmp_path_factory.mktemp("run") / "controls.parquet"
    write_table(path, synthetic.controls(MODELS, DATASETS), CONTROLS, synthetic.metadata())
    return path


def drawn(table, entry=None, **keys):
    entry = entry or ControlsFigure(kind="controls", **keys)
    return Content(entry, [TableSource(path=str(table))], STAGE).draw()


def legend_texts(figure):
    return [text.get_text() for text in figure.legends[0].get_texts() if text.get_text().strip()]


def curves(panel):
    return {line.get_label(): line for line in panel.lines if not line.get_label().startswith("_")}


def rows_of(table, model, dataset, **keys):
    """Return the rows of a series that have a layer, by their keys; None stands for null."""
    rows = pd.read_parquet(table).dropna(subset=["layer"])
    for key, value in {"model": model, "dataset": dataset, **keys}.items():
        rows = rows[rows[key].isna() if value is None else rows[key] == value]
    return rows


def changed(table, tmp_path, change):
    path = tmp_path / "controls.parquet"
    rows = change(pd.DataFrame(synthetic.controls(MODELS, DATASETS).to_pylist()))
    write_table(path, rows.astype(object).where(rows.notna(), None).to_dict("records"), CONTROLS, synthetic.metadata())
    return path


def test_there_is_a_panel_for_each_model_and_data_set_and_a_curve_for_each_control(table):
    figure = drawn(table, statistic="flip_rate")
    assert [panel.get_title() for panel in figure.axes] == [
        "Qwen3-8B\nPopQA", "Qwen3-8B\nNQ", "Qwen3-32B\nPopQA", "Qwen3-32B\nNQ",
    ]  # fmt: skip
    assert legend_texts(figure) == [
        "Exact question cut", "Random tokens cut", "Permuted labels", "Noise", "Cross-fitted",
    ]  # fmt: skip
    wanted = rows_of(table, "qwen3-32b", "nq", statistic="flip_rate", control="permuted_labels")
    line = curves(figure.axes[3])["Permuted labels"]
    np.testing.assert_allclose(line.get_ydata(), wanted["value"])
    band = figure.axes[3].collections[4].get_paths()[0].vertices[:, 1]  # each curve has a band, and strokes
    assert (band.min(), band.max()) == pytest.approx((wanted["ci_low"].min(), wanted["ci_high"].max()))


def test_the_method_is_black_and_thick_and_a_control_keeps_its_colour_in_every_figure(table):
    found = curves(drawn(table, statistic="gap").axes[0])
    method, noise = found["Exact question cut"], found["Noise"]
    assert to_hex(method.get_color()) == "#000000"
    assert method.get_linewidth() > 1.5 * noise.get_linewidth()
    assert len({to_hex(line.get_color()) for line in found.values()}) == len(found)
    other = curves(drawn(table, statistic="delta_p_difference", controls=("noise",)).axes[0])
    assert other["Noise"].get_color() == noise.get_color()


def test_a_layer_without_a_value_is_a_gap_and_there_is_a_line_at_zero(table):
    panel = drawn(table, statistic="gap").axes[0]
    assert list(np.isnan(curves(panel)["Exact question cut"].get_ydata())) == [True, True] + [False] * 4
    assert any(set(line.get_ydata()) == {0} for line in panel.lines)


def test_groups_fixed_at_the_reference_layer_have_farther_layers_beside_them(table):
    per_layer, reference = (
        curves(drawn(table, statistic="gap", grouping=grouping).axes[0]) for grouping in ("per_layer", "reference")
    )
    assert "Groups of farther layers" in reference
    assert "Groups of farther layers" not in per_layer
    assert "Equal class mix" in per_layer


def test_a_difference_is_of_all_samples_or_of_one_group(table):
    for group in (None, "q_anchored"):
        figure = drawn(table, statistic="delta_p_difference", group=group)
        grouping = "per_layer" if group else None
        wanted = rows_of(
            table,
            "qwen3-8b",
            "popqa",
            statistic="delta_p_difference",
            control="random_tokens",
            group=group,
            grouping=grouping,
        )
        np.testing.assert_allclose(curves(figure.axes[0])["Random tokens cut"].get_ydata(), wanted["value"])
        whom = "Q-Anchored" if group else "all samples"
        assert figure.axes[0].get_ylabel() == f"ΔP ({whom}),\nmethod − control"


def test_windows_show_both_groups_of_every_width_and_the_layer_that_is_read(table):
    keys = {"statistic": "delta_p", "controls": ("windows",), "grouping": "reference", "group": "both"}
    figure = drawn(table, **keys)
    panel = figure.axes[2]
    found = curves(panel)
    assert {label: line.get_linestyle() for label, line in found.items()} == {
        "Q-Anchored (single layer)": "-",
        "A-Anchored (single layer)": "--",
        "Q-Anchored (window of 4 layers)": "-",
        "A-Anchored (window of 4 layers)": "--",
    }
    wanted = rows_of(table, "qwen3-32b", "popqa", control="window_4", group="q_anchored")
    np.testing.assert_allclose(found["Q-Anchored (window of 4 layers)"].get_ydata(), wanted["value"])
    (vertical,) = [line for line in panel.lines if line.get_label() == "_vertical"]
    assert set(vertical.get_xdata()) == {4}
    assert panel.get_ylabel() == ""
    assert figure.axes[0].get_ylabel() == "ΔP at k*"
    assert panel.get_xlabel() == "Window's first layer"
    assert "line: k* = 4" in [text.get_text() for text in panel.texts]
    depth = drawn(table, x="depth", **keys).axes[2]
    (vertical,) = [line for line in depth.lines if line.get_label() == "_vertical"]
    assert set(vertical.get_xdata()) == {0.5}


def test_windows_that_are_read_at_their_end_have_no_line(table, tmp_path):
    path = changed(table, tmp_path, lambda rows: rows.assign(at=rows["layer"]))
    figure = drawn(path, statistic="delta_p", controls=("windows",), grouping="reference", group="both")
    assert figure.axes[0].get_ylabel() == "ΔP at the window's end"
    assert not [line for line in figure.axes[0].lines if line.get_label() == "_vertical"]


def test_several_extractors_stand_side_by_side_where_all_are_asked_for(table, tmp_path):
    def twice(rows):
        return pd.concat([rows, rows.assign(extractor="rules")])

    path = changed(table, tmp_path, twice)
    with pytest.raises(DeltapError, match=r"several values of extractor \(auto, rules\)"):
        drawn(path, statistic="flip_rate")
    figure = drawn(path, statistic="flip_rate", extractor="all", models=("qwen3-8b",), datasets=("nq",))
    assert [panel.get_title() for panel in figure.axes] == ["Qwen3-8B, auto\nNQ", "Qwen3-8B, rules\nNQ"]


def test_what_a_panel_lacks_stands_in_its_corner(table, tmp_path):
    def without(rows):
        lost = (rows["control"] == "cross_fitted") & (rows["dataset"] == "nq") & (rows["model"] == "qwen3-8b")
        return rows[~lost]

    figure = drawn(changed(table, tmp_path, without), statistic="flip_rate")
    assert [" ".join(panel.texts[0].get_text().split()) for panel in figure.axes] == [
        "", "no data: cross-fitted", "", "",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"statistic": "gap", "group": "q_anchored"}, "group: gap is of both groups"),
        ({"statistic": "flip_rate", "grouping": "reference"}, "grouping: flip_rate is that of per_layer"),
        ({"statistic": "gap_difference", "controls": ["exact_question"]}, "a difference is that of the method"),
        (
            {"statistic": "delta_p", "controls": ["windows"]},
            "windows stand alone, with statistic: delta_p and grouping",
        ),
        ({"statistic": "gap", "controls": ["noise", "noise"]}, "noise listed twice"),
        ({"statistic": "gap", "controls": ["nois"]}, "Input should be 'exact_question'"),
        ({}, "statistic"),
    ],
)
def test_what_no_table_can_show_is_refused(keys, message):
    with pytest.raises(ValidationError, match=re.escape(message)):
        ControlsFigure(kind="controls", **keys)


def test_a_control_that_the_table_lacks_is_refused_by_name(table, tmp_path):
    with pytest.raises(DeltapError, match=r"the table has no 'refits' with statistic 'gap'.*'controls' say what"):
        drawn(table, statistic="gap", controls=("refits",))
    path = changed(table, tmp_path, lambda rows: rows[~rows["control"].str.startswith("window")])
    with pytest.raises(DeltapError, match="the table has no 'windows'"):
        drawn(path, statistic="delta_p", controls=("windows",), grouping="reference", group="both")
    with pytest.raises(DeltapError, match=r"no rows with site 'mlp' \(valid: attn\)"):
        drawn(table, statistic="gap", site="mlp")
    with pytest.raises(DeltapError, match=r"this folder has no controls.parquet"):
        drawn(tmp_path.parent, statistic="gap")


def run_of(figures, controls, definitions, tmp_path):
    (tmp_path / "f.yaml").write_text(json.dumps(definitions))
    given = {"run": "x", "models": ["smollm2-135m-few-shot"], "datasets": ["popqa-style"], "figures": figures,
             "controls": controls, "figure_files": [str(tmp_path / "f.yaml")]}  # fmt: skip
    return Run(given, ROOT / "config")


def test_a_run_refuses_figures_of_controls_that_it_does_not_compute(tmp_path):
    shown = {
        "mine": {"kind": "controls", "statistic": "gap", "controls": ["random_tokens"]},
        "beside-mine": {"beside": "random_tokens"},
        "mlp": {"kind": "controls", "statistic": "gap", "site": "mlp"},
    }
    for figure in ("gap_controls", "delta_p_controls", "windows"):
        with pytest.raises(DeltapError, match=f"figure '{figure}': it shows a control, and this run has none"):
            run_of([figure], None, shown, tmp_path).figure_jobs()
    without = {"interventions": None}
    for figure, control in (("mine", "random_tokens"), ("beside-mine", "random_tokens"), ("windows", "windows")):
        with pytest.raises(
            DeltapError, match=f"figure '{figure}': it shows '{control}', which this run's 'controls' do"
        ):
            run_of([figure], without, shown, tmp_path).figure_jobs()
    with pytest.raises(DeltapError, match="figure 'mlp': site 'mlp' is not measured"):
        run_of(["mlp"], {}, shown, tmp_path).figure_jobs()
    jobs = run_of(["gap_controls", "delta_p_controls", "windows"], {}, shown, tmp_path).figure_jobs()
    assert [job.tables[0].name for job in jobs.values()] == [
        "controls.parquet", "delta_p_summary.parquet", "controls.parquet",
    ]  # fmt: skip


@pytest.fixture(scope="module")
def summary(tmp_path_factory):
    """Mean ΔP of the method, and of random tokens in the same groups."""
    path = tmp_path_factory.mktemp("run") / "delta_p_summary.parquet"
    rows = [
        {"model": "qwen3-8b", "dataset": dataset, "extractor": "auto", "intervention": intervention,
         "estimate": estimate, "grouping": "per_layer", "anchor": anchor, "site": "attn",
         "position": "exact_answer_last", "layer": layer, "n": 20, "mean": share * level * layer,
         "ci_low": share * level * layer - 2, "ci_high": share * level * layer + 2}
        for dataset in DATASETS
        for intervention, estimate, share in (
            ("exact_question", "plain", 1.0), ("random_tokens", SAME_GROUPS, 0.25), ("random_tokens", "plain", 0.5),
        )
        for anchor, level in (("q_anchored", -8.0), ("a_anchored", -1.0))
        for layer in range(6)
    ]  # fmt: skip
    write_table(path, rows, SUMMARY, synthetic.metadata())
    return path


def test_another_cut_of_the_same_groups_is_a_thin_line_beside_each_curve(summary):
    alone, figure = (drawn(summary, DeltaPFigure(beside=beside)) for beside in (None, "random_tokens"))
    own, lines = curves(figure.axes[0]), figure.axes[0].lines
    assert legend_texts(figure) == list(own) == list(curves(alone.axes[0]))
    thin = [line for line in lines if line.get_label() == "_beside"]
    for curve, beside in zip(own.values(), thin, strict=True):
        np.testing.assert_allclose(beside.get_ydata(), 0.25 * curve.get_ydata())
        assert (beside.get_color(), beside._dash_pattern[0]) == (curve.get_color(), curve._dash_pattern[0])
        assert beside.get_linewidth() < 0.5 * curve.get_linewidth()
    assert figure.legends[0].get_title().get_text() == "Thin, without band: random tokens cut, same groups"
    assert alone.legends[0].get_title().get_text() == ""
    assert sum(bool(band.get_paths()) for band in figure.axes[0].collections) == len(own)


def test_the_interactive_figure_has_the_thin_lines_too(summary):
    source = [TableSource(path=str(summary))]
    texts = [Content(DeltaPFigure(beside=name), source, STAGE).page("x") for name in (None, "random_tokens")]
    assert ["Thin, without band: random tokens cut, same groups" in text for text in texts] == [False, True]
    assert [text.count('"strokeWidth": 0.81') for text in texts] == [0, 1]


def test_what_stands_beside_has_to_be_there(summary):
    with pytest.raises(
        DeltapError, match=r"no rows with intervention 'noise' \(valid: exact_question, random_tokens\)"
    ):
        drawn(summary, DeltaPFigure(beside="noise"))
    assert "anchors" not in table_names(DeltaPFigure(beside="noise"))
