"""Several extractors side by side, a language model behind a server, and given files, through the whole workflow."""

import json
import re

import pytest
import running

from deltap.tables import LABELS, SAMPLES, SUMMARY, read_table
from stand_in_llm import serve

pytestmark = pytest.mark.xdist_group("workflow")
EXTRACTORS = ["auto", "given", "llm"]


def worker(message):
    """Name the subject of a question and the first word of a reply; call every second reply right."""
    *_, text = message.split("\n", 1)
    if "Right answers:" in text:
        return json.dumps({"right": len(text) % 2 == 0})
    if "\nReply:" in text:
        word = re.search(r"Reply: \W*(\w+)", text)
        return json.dumps({"core": word and word[1]})
    return json.dumps({"subject": re.findall(r"\w+", text)[-1], "property": "capital"})


@pytest.fixture(scope="module")
def compared(configfile, tmp_path_factory):
    """The folder of results of a run with every extractor and a judging model, and the requests that it sent."""
    folder = tmp_path_factory.mktemp("extractors")
    spans = folder / "spans.csv"
    spans.write_text(
        "question_id,exact_question\n" + "".join(f'{index},"[""What is""]"\n' for index in range(0, 80, 2)),
        encoding="utf-8",
    )
    with serve(worker) as requests:
        mine = running.changed(
            configfile,
            models=["tiny-base"],
            datasets=["capitals"],
            extractors=EXTRACTORS,
            llm={"server": {"url": requests.url, "model": "worker"}},
            labels={"match": "llm"},
            given={"spans": [str(spans)]},
        )
        running.snakemake(folder, mine)
    return folder, requests


def test_every_extractor_has_its_own_samples_and_curves(compared):
    folder, _ = compared
    results = folder / "results" / "mine"
    samples = read_table(results / "samples.parquet", SAMPLES).to_pandas()
    assert sorted(samples["extractor"].unique()) == sorted(EXTRACTORS)
    assert samples.groupby("extractor", observed=True).size().nunique() == 1
    sources = samples.groupby("extractor", observed=True)["exact_question_source"].unique()
    assert {name: sorted(map(str, found)) for name, found in sources.items()} == {
        "auto": ["fields", "given"],
        "given": ["given", "nan"],
        "llm": ["llm"],
    }
    excluded = samples[(samples["extractor"] == "given") & samples["exact_question_source"].isna()]
    assert set(excluded["exclusion"].dropna()) == {"no_exact_question"}
    summary = read_table(results / "delta_p_summary.parquet", SUMMARY).to_pandas()
    assert sorted(summary["extractor"].unique()) == sorted(EXTRACTORS)


def test_the_model_answers_once_for_all_of_them(compared):
    folder, _ = compared
    answers = read_table(folder / "results" / "mine" / "answers.parquet", LABELS).to_pandas()
    for _, rows in answers.groupby("question_id"):
        assert len({tuple(ids) for ids in rows["answer_ids"]}) == 1
    log = folder / "results" / "mine" / "logs" / "inference" / "tiny-base" / "capitals"
    made = [path for path in (folder / "work" / "chunks").rglob("*.safetensors") if b'"ids' in path.read_bytes()[:4000]]
    assert len(list(log.glob("*/0.log"))) == len(EXTRACTORS)
    assert len(made) == 1


def test_nothing_is_asked_for_twice_and_the_judge_labels(compared):
    folder, requests = compared
    messages = [request["messages"][-1]["content"] for request in requests]
    assert len(messages) == len(set(messages))
    answers = read_table(folder / "results" / "mine" / "answers.parquet", LABELS).to_pandas()
    judged = answers[answers["label_by_llm"].notna()]
    assert len(judged) > 100
    assert (judged["label"] == judged["label_by_llm"]).all()
    assert set(judged["label_source"]) == {"llm"}
    assert "exact_answer = llm" in (folder / "results" / "mine" / "samples.md").read_text(encoding="utf-8")


def test_given_answers_and_labels_replace_their_stages(configfile, tmp_path):
    answers, labels = tmp_path / "answers.jsonl", tmp_path / "labels.csv"
    rows = [{"question_id": str(i), "answer": f"It is {name} City."} for i, name in enumerate(running.SUBJECTS)]
    answers.write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    labels.write_text(
        "question_id,label\n" + "".join(f"{i},{'truthful' if i % 3 else 'hallucinated'}\n" for i in range(80)),
        encoding="utf-8",
    )
    mine = running.changed(
        configfile,
        models=["tiny-base"],
        datasets=["capitals"],
        given={"answers": [str(answers)], "labels": [str(labels)]},
    )
    running.snakemake(tmp_path, mine)
    found = read_table(tmp_path / "results" / "mine" / "answers.parquet", LABELS).to_pylist()
    assert {row["answer"] for row in found} == {row["answer"] for row in rows}
    assert all(row["answer_given"] for row in found)
    assert {row["exact_answer"]["text"].split()[-1] for row in found} == {"City"}
    for row in found:
        expected = "truthful" if int(row["question_id"]) % 3 else "hallucinated"
        assert (row["label"], row["label_source"]) == (expected, "given")
    assert (tmp_path / "results" / "mine" / "figures" / "delta_p.png").exists()
