"""What figures are drawn from: tables of several kinds, from here and elsewhere, and what is chosen of them."""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

import synthetic
from deltap.errors import DeltapError
from deltap.figures.kinds import Content
from deltap.figures.sources import read, read_labels, suitable
from deltap.settings import (
    AurocFigure,
    BootstrapSettings,
    DeltaPFigure,
    DistributionFigure,
    ExclusionsFigure,
    FigureEntry,
    PlotStage,
    TableSource,
)
from deltap.tables import ANCHORS, SUMMARY, write_table

STAGE = PlotStage(figures={}, bootstrap=BootstrapSettings(draws=100))


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """The tables of a run."""
    folder = tmp_path_factory.mktemp("run")
    synthetic.write_run(folder, 30)
    return folder


def content(entry: FigureEntry, *tables, **stage) -> Content:
    sources = [table if isinstance(table, TableSource) else TableSource(path=str(table)) for table in tables]
    return Content(entry, sources, STAGE.model_copy(update=stage))


def means(drawn: Content) -> np.ndarray:
    keys = ["model", "dataset", "anchor", "layer"]
    return drawn.rows.astype(dict.fromkeys(keys[:3], str)).sort_values(keys)["mean"].to_numpy(float)


def changed(run, name, path, change):
    """Write a table of the run with a change to ``path``."""
    table = change(pq.read_table(run / f"{name}.parquet"))
    pq.write_table(table, path)
    return path


def test_summary_tidy_table_and_anchors_give_the_same_means(run):
    of = [means(content(DeltaPFigure(), run / f"{name}.parquet")) for name in ("delta_p_summary", "delta_p", "anchors")]
    np.testing.assert_allclose(of[0], of[1], atol=1e-4)
    np.testing.assert_allclose(of[0], of[2], atol=1e-4)


def test_a_folder_of_results_is_as_good_as_its_table(run):
    assert content(DeltaPFigure(), run).paths == [run / "delta_p_summary.parquet"]
    assert content(DeltaPFigure(interval=0.5), run).paths == [run / "anchors.parquet"]
    assert content(AurocFigure(kind="auroc"), run).paths == [run / "probes.parquet"]
    assert content(ExclusionsFigure(kind="exclusions"), run).paths == [run / "samples.parquet"]


def test_another_interval_is_computed(run):
    narrow, wide = (content(DeltaPFigure(interval=level), run / "delta_p.parquet").rows for level in (0.5, 0.99))
    width = [(rows["ci_high"] - rows["ci_low"]).dropna().to_numpy() for rows in (narrow, wide)]
    assert (width[0] <= width[1]).all()
    assert width[0].mean() < 0.5 * width[1].mean()


@pytest.mark.parametrize("table", ["anchors", "delta_p"])
def test_another_reference_class_is_computed(run, table):
    """Of a sample that is predicted to be hallucinated, the truthful class moves the other way."""
    rows = content(DeltaPFigure(reference_class="truthful"), run / f"{table}.parquet").rows
    tidy = pq.read_table(run / "delta_p.parquet").to_pandas()
    tidy["truthful"] = 100.0 * (tidy["p_knockout"].astype(float) - tidy["p_clean"].astype(float))
    tidy = tidy[tidy["grouping"] == "per_layer"]
    wanted = tidy.groupby(["model", "dataset", "anchor", "layer"], observed=True)["truthful"].mean()
    for row in rows[rows["n"] > 0].sample(40, random_state=0).itertuples():
        assert row.mean == pytest.approx(wanted[row.model, row.dataset, row.anchor, row.layer], abs=1e-4)


def test_the_tidy_table_does_not_know_the_reference_layer(run):
    entry = DeltaPFigure(reference_class="predicted_at_reference")
    with pytest.raises(DeltapError, match=r"give the run's anchors\.parquet"):
        content(entry, run / "delta_p.parquet")
    assert len(content(entry, run / "anchors.parquet").rows)


def test_anchors_take_the_runs_reference_class_unless_the_figure_says_another(run):
    same = content(DeltaPFigure(reference_class="gold"), run / "anchors.parquet")
    usual = content(DeltaPFigure(), run / "anchors.parquet", reference_class="gold")
    np.testing.assert_array_equal(means(same), means(usual))
    assert not np.allclose(means(same), means(content(DeltaPFigure(), run / "anchors.parquet")), equal_nan=True)


def test_selection_keeps_one_site_position_grouping_and_extractor(run):
    rows = content(DeltaPFigure(grouping="reference", models=("qwen3-8b",), datasets=("nq", "popqa")), run).rows
    assert set(rows["grouping"]) == {"reference"}
    assert set(rows["dataset"]) == {"nq", "popqa"}
    assert len(rows) == 2 * 2 * 36


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        (DeltaPFigure(models=("qwen3-8B",)), "model 'qwen3-8B'; did you mean 'qwen3-8b'"),
        (DeltaPFigure(datasets=("trivia",)), "dataset 'trivia'; did you mean 'triviaqa'"),
        (DeltaPFigure(extractor="rules"), r"extractor 'rules' \(valid: auto\)"),
        (DeltaPFigure(site="resid"), r"site 'resid' \(valid: attn\)"),
        (DeltaPFigure(grouping=None), r"several values of grouping \(per_layer, reference\): choose one"),
    ],
)
def test_choosing_what_the_table_lacks_is_refused_by_name(run, entry, message):
    with pytest.raises(DeltapError, match=message):
        content(entry, run)


def test_several_extractors_need_a_choice_or_stand_side_by_side(run, tmp_path):
    both = changed(run, "delta_p_summary", tmp_path / "both.parquet", lambda table: pa.concat_tables(
        [table.set_column(2, "extractor", pa.array([name] * len(table))) for name in ("auto", "rules")]
    ).replace_schema_metadata(table.schema.metadata))  # fmt: skip
    with pytest.raises(DeltapError, match=r"several values of extractor \(auto, rules\)"):
        content(DeltaPFigure(), both)
    assert set(content(DeltaPFigure(extractor="rules"), both).rows["extractor"]) == {"rules"}
    titles = [panel.get_title() for panel in content(DeltaPFigure(extractor="all"), both).draw().axes]
    assert titles == ["Qwen3-8B, auto", "Qwen3-8B, rules", "Qwen3-32B, auto", "Qwen3-32B, rules"]
    chosen = [TableSource(path=str(both), extractor=name, label=f"by {name}") for name in ("auto", "rules")]
    titles = [panel.get_title() for panel in content(DeltaPFigure(models=("qwen3-32b",)), *chosen).draw().axes]
    assert titles == ["Qwen3-32B, by auto", "Qwen3-32B, by rules"]


def test_tables_of_different_models_stand_together_without_labels(run, tmp_path):
    for name in synthetic.PAPER:
        changed(run, "delta_p_summary", tmp_path / f"{name}.parquet",
                lambda table, name=name: table.filter(pc.equal(table["model"].cast(pa.string()), name)))  # fmt: skip
    figure = content(DeltaPFigure(), tmp_path / "qwen3-8b.parquet", tmp_path / "qwen3-32b.parquet").draw()
    assert [panel.get_title() for panel in figure.axes] == ["Qwen3-8B", "Qwen3-32B"]


def test_two_tables_of_the_same_models_need_labels(run):
    with pytest.raises(DeltapError, match=r"two rows .* need labels"):
        content(DeltaPFigure(), run, run).draw()
    labelled = [TableSource(path=str(run), label=label) for label in ("ours", "theirs")]
    figure = content(DeltaPFigure(models=("qwen3-32b", "qwen3-8b")), *labelled).draw()
    titles = [f"Qwen3-{size}, {label}" for size in ("32B", "8B") for label in ("ours", "theirs")]
    assert [panel.get_title() for panel in figure.axes] == titles


def test_labels_come_from_the_tables_metadata_or_are_given(run, tmp_path):
    assert read_labels([run / "delta_p_summary.parquet"]) == synthetic.LABELS
    plain = changed(run, "delta_p_summary", tmp_path / "plain.parquet", lambda table: table.replace_schema_metadata())
    assert read_labels([plain]) == {"model": {}, "dataset": {}}
    drawn = Content(DeltaPFigure(), [TableSource(path=str(plain))], STAGE, {"model": {"qwen3-8b": "Eight"}}).draw()
    assert [panel.get_title() for panel in drawn.axes] == ["Eight", "qwen3-32b"]


def test_missing_and_wrong_columns_are_refused_by_file_and_name(run, tmp_path):
    short = changed(
        run, "delta_p_summary", tmp_path / "short.parquet", lambda table: table.drop_columns(["n", "model"])
    )
    with pytest.raises(DeltapError, match=r"short.parquet: missing columns model, n "):
        content(DeltaPFigure(), short)
    place = SUMMARY.get_field_index("mean")
    wrong = changed(run, "delta_p_summary", tmp_path / "wrong.parquet",
                    lambda table: table.set_column(place, "mean", pa.array(["low"] * len(table))))  # fmt: skip
    with pytest.raises(DeltapError, match=r"wrong.parquet: mean is string"):
        content(DeltaPFigure(), wrong)
    with pytest.raises(DeltapError, match=r"probes.parquet: missing columns .*flips"):
        content(DistributionFigure(kind="delta_p_distribution"), run / "probes.parquet")
    with pytest.raises(DeltapError, match="no such table"):
        content(DeltaPFigure(), tmp_path / "absent.parquet")
    with pytest.raises(DeltapError, match=r"has no probes.parquet"):
        content(AurocFigure(kind="auroc"), tmp_path)


def test_of_many_tables_a_figure_takes_those_that_suit_it(run):
    tables = [run / f"{name}.parquet" for name in ("anchors", "probes", "samples")]
    assert suitable(tables, DeltaPFigure()) == tables[:1]
    assert suitable(tables, AurocFigure(kind="auroc")) == tables[1:2]
    assert suitable([*tables, run], DeltaPFigure()) == [run / "delta_p_summary.parquet"]


def test_only_the_chosen_rows_are_kept_of_a_large_table(run):
    (part,) = read([TableSource(path=str(run / "anchors.parquet"))], DeltaPFigure(models=("qwen3-8b",)))
    assert part.rows.num_rows == 36 * 4 * 30
    assert part.rows.schema == ANCHORS


def test_a_table_without_rows_is_refused(run, tmp_path):
    write_table(tmp_path / "empty.parquet", [], SUMMARY, {})
    with pytest.raises(DeltapError, match="no rows"):
        content(DeltaPFigure(), tmp_path / "empty.parquet").draw()
