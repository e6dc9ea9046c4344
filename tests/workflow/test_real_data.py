"""Every file of real questions through the whole workflow with the demo's model, 40 questions of each."""

import pytest
import running

from deltap.tables import PROBES, SAMPLES, SUMMARY, read_table

pytestmark = pytest.mark.xdist_group("real")  # one run serves all tests
FILES = {
    "popqa": ("popqa", "popqa.tsv"),
    "popqa-flashrag": ("popqa", "popqa.flashrag.jsonl"),
    "triviaqa": ("triviaqa", "triviaqa.official.json"),
    "triviaqa-flashrag": ("triviaqa", "triviaqa.flashrag.jsonl"),
    "hotpotqa": ("hotpotqa", "hotpotqa.simplified.json"),
    "nq": ("nq", "NQ-open.dev.jsonl"),
    "nq-flashrag": ("nq", "nq.flashrag.jsonl"),
}
NUMBER = 40


@pytest.fixture(scope="module")
def results(shared_data, tmp_path_factory):
    folder = tmp_path_factory.mktemp("real")
    entries = {
        name: {"label": name, "format": kind, "path": str(shared_data / file), "yes_no": False}
        for name, (kind, file) in FILES.items()
    }
    running.write_yaml(folder / "real.yaml", entries)
    mine = running.write_yaml(
        folder / "mine.yaml",
        {
            "run": "real",
            "models": ["smollm2-135m-few-shot"],
            "datasets": list(FILES),
            "dataset_files": [str(folder / "real.yaml")],
            "questions": {"number": NUMBER, "splits": {"train": 0.4, "validation": 0.2, "test": 0.4}},
            "inference": {"sites": ["mlp"], "positions": ["exact_answer_last"]},
            "figures": ["mine"],
            "figure_files": [str(running.write_yaml(folder / "figures.yaml", {"mine": {"site": "mlp"}}))],
            "bootstrap": {"draws": 100},
            "paths": {"models": str(running.ROOT / "models")},  # where the demo keeps it too
        },
    )
    running.snakemake(folder, mine)
    return folder / "results" / "real"


def test_every_file_gets_to_the_figure(results):
    assert (results / "figures" / "mine.png").read_bytes().startswith(b"\x89PNG")
    samples = read_table(results / "samples.parquet", SAMPLES).to_pandas()
    asked = samples.groupby("dataset", observed=True).size()
    assert {name: int(asked[name]) for name in FILES} == dict.fromkeys(FILES, NUMBER)
    # Nearly every question and answer has exact tokens, whoever wrote the file down.
    assert (samples["exact_question_tokens"] > 0).mean() > 0.99
    assert samples["used_for_probes"].mean() > 0.8


def test_a_set_has_curves_or_the_reason_why_not(results):
    probes = read_table(results / "probes.parquet", PROBES).to_pandas()
    summary = read_table(results / "delta_p_summary.parquet", SUMMARY).to_pandas()
    report = (results / "samples.md").read_text(encoding="utf-8")
    for name in FILES:
        trained = probes[probes["dataset"] == name]["regularisation"].notna().any()
        assert trained == (name in set(summary["dataset"]))
        line = next(line for line in report.split("## Samples of the probes")[1].splitlines() if f" {name} " in line)
        assert ("none: " in line) == (not trained)
