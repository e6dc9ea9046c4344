"""A run with every control on a tiny model: what it adds, and that it changes nothing of the method itself."""

import pyarrow.compute as pc
import pytest
import running

from deltap.tables import ANSWERS, CONTROLS, DELTA_P, DIFFERENCES, INTERVENTIONS, SUMMARY, read_table

pytestmark = pytest.mark.xdist_group("workflow")
CONTROLLED = {
    "permuted_labels": 2,
    "noise": 2,
    "strength": [0.01],
    "refits": 2,
    "leave_layers_out": 1,
    "min_n": 2,
    "interventions": {
        "random_tokens": 2,
        "dose": [1],
        "windows": {"widths": [1, 2], "samples": 8},
        "heads": {"layers": [1], "samples": 8},
    },
}
MODEL, DATASETS = "tiny-base", ["capitals", "rulers"]


@pytest.fixture(scope="module")
def controlled(configfile, finished):
    """The results of a run with controls, beside those of the run without; inference is taken from the store."""
    path = running.changed(configfile, run="controlled", models=[MODEL], controls=CONTROLLED)
    running.snakemake(configfile.parent, path)
    return configfile.parent / "results" / "controlled"


def test_the_methods_own_rows_are_those_of_a_run_without_controls(controlled, finished):
    own = read_table(controlled / "delta_p.parquet", DELTA_P)
    own = own.filter(
        pc.and_(pc.equal(own["estimate"].cast("string"), "plain"),
                pc.equal(own["intervention"].cast("string"), "exact_question"))
    )  # fmt: skip
    without = read_table(finished / "delta_p.parquet", DELTA_P)
    without = without.filter(pc.equal(without["model"].cast("string"), MODEL))
    keys = ["dataset", "grouping", "site", "layer", "question_id"]
    one, other = (table.to_pandas().astype({"dataset": str, "grouping": str, "site": str}).sort_values(keys)
                  for table in (own, without))  # fmt: skip
    for name in ("delta_p", "p_clean", "p_knockout"):
        assert (one[name].to_numpy() == other[name].to_numpy()).all()
    assert (controlled / "verdict.md").read_text() != ""


def test_the_tidy_table_has_every_control(controlled):
    table = read_table(controlled / "delta_p.parquet", DELTA_P).to_pandas()
    found = set(map(tuple, table[["intervention", "estimate"]].astype(str).drop_duplicates().to_numpy()))
    others = {(name, estimate) for name in ("noise", "random_tokens", "random_mass", "answer_queries")
              for estimate in ("plain", "same_groups")}  # fmt: skip
    again = {"plain", "permuted_labels", "leave_layers_out", "permuted_labels_leave_layers_out", "calibrated"}
    others |= {(name, "leave_layers_out") for name, _ in others}
    certain = others | {("exact_question", estimate) for estimate in again}
    # A class of one training sample is not divided, and not every sample is stable.
    crossed = {(name, "cross_fitted") for name, _ in certain} | {("exact_question", "permuted_labels_cross_fitted")}
    assert certain <= found <= certain | crossed | {("exact_question", "stable_samples")}
    random = table[(table["intervention"] == "random_tokens") & (table["estimate"] == "plain")]
    assert set(random["draw"]) == {0, 1}
    summary = read_table(controlled / "delta_p_summary.parquet", SUMMARY).to_pandas()
    assert not summary.duplicated(
        ["dataset", "intervention", "estimate", "grouping", "anchor", "site", "position", "layer"]
    ).any()


def test_other_cuts_block_no_token_of_the_exact_question_and_no_answer(controlled):
    for dataset in DATASETS:
        folder = controlled / "interventions" / MODEL / dataset / "auto" / "0"
        rows = read_table(folder / "interventions.parquet", INTERVENTIONS).to_pylist()
        said = controlled / "inference" / MODEL / dataset / "auto" / "0" / "answers.parquet"
        exact = {row["question_id"]: row for row in read_table(said, ANSWERS).to_pylist()}
        for row in rows:
            of_question = exact[row["question_id"]]
            if row["intervention"] in ("random_tokens", "random_mass"):
                assert not set(row["tokens"]) & {0, *of_question["exact_question_tokens"]}
                assert max(row["tokens"]) < of_question["prompt_tokens"]
            if row["intervention"] == "random_tokens":
                assert len(row["tokens"]) == len(of_question["exact_question_tokens"])


def test_the_report_answers_the_sceptic(controlled):
    text = (controlled / "controls.md").read_text()
    assert text.startswith("# Is the effect real?")
    for title in ("In short: is the effect …", "At which layers",
                  "The gap, and what gives one without an effect", "The gap, otherwise", "How many flip",
                  "Against other cuts",
                  "Class", "Strength of the probe", "Dose", "Two groups or one?",
                  "Would a sample be grouped so again?", "Models and data sets against each other"):  # fmt: skip
        assert f"## {title}" in text
    assert "Capitals" in text
    assert len(read_table(controlled / "controls_differences.parquet", DIFFERENCES))
    statistics = read_table(controlled / "controls.parquet", CONTROLS).to_pandas()
    assert {"window_1", "window_2", "heads", "dose", "refits"} <= set(statistics["control"].astype(str))


def test_another_probe_needs_no_language_model(controlled, configfile):
    path = running.changed(configfile, run="controlled", models=[MODEL], controls={**CONTROLLED, "permuted_labels": 3})
    jobs = running.planned(running.snakemake(configfile.parent, path, "-n").stdout)
    assert "inference" not in jobs
    assert "interventions" not in jobs
    assert jobs["controls"] == 2


def test_a_site_that_is_not_measured_is_refused_by_name(configfile):
    path = running.changed(configfile, controls={"site": "mlp"})
    done = running.snakemake(configfile.parent, path, "-n", check=False)
    assert done.returncode
    assert "controls.site: 'mlp' is not measured; inference.sites has attn, resid" in done.stdout
