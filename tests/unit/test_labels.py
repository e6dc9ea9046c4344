import importlib.util
import json
import logging
import random
from argparse import Namespace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deltap.errors import DeltapError
from deltap.exact.answer_rules import span_by_rules
from deltap.labels import Label, counts, label, labelled
from deltap.settings import LabelSettings, Match
from deltap.tables import ANSWERS, JUDGEMENTS, LABELS, read_metadata, read_table, write_table

QUESTION = "What is the capital of Romania?"


def labelled_answer(
    answer: str,
    gold_answers: list[str],
    question: str = QUESTION,
    match: Match = "exact_answer",
    judged: str | None = None,
) -> Label:
    span = span_by_rules(answer, question)
    text = span.text_in(answer) if span else None
    return label(answer, text, question, gold_answers, match, judged)


@pytest.mark.parametrize(
    ("answer", "gold_answers", "expected"),
    [
        ("Bucharest", ["Bucharest"], "truthful"),
        ("The capital is BUCHAREST.", ["Bucharest"], "truthful"),
        ("București", ["Bucures\u0326ti"], "truthful"),  # composed and decomposed comma below
        ("Bucuresti", ["București"], "hallucinated"),  # accents are letters
        ("Sofia", ["Bucharest"], "hallucinated"),
        ("Tirana", ["Iran"], "hallucinated"),
        ("Iran", ["Tirana"], "hallucinated"),
        ("Obama", ["Barack Obama"], "hallucinated"),
        ("Obama", ["Barack Obama", "Obama"], "truthful"),
        ("Barack Obama", ["Obama"], "truthful"),
        ("“Obama” (president)", ["obama"], "truthful"),
        ("Cairo", ["🇪🇬", "!!", ""], "hallucinated"),
        ("🇪🇬 Cairo", ["🇪🇬", "Cairo"], "truthful"),
        ("東京都", ["東京"], "truthful"),
        ("Москва", ["москва"], "truthful"),
        ("Paris, not Bucharest", ["Bucharest"], "hallucinated"),
    ],
)
def test_an_answer_is_truthful_if_its_core_equals_or_contains_a_gold_answer(
    answer: str, gold_answers: list[str], expected: str
) -> None:
    assert labelled_answer(answer, gold_answers).label == expected


def test_the_first_matching_gold_answer_is_named() -> None:
    assert labelled_answer("New York City", ["NYC", "New York", "New York City"]).matched_alias == "New York"
    assert labelled_answer("Rome", ["New York"]).matched_alias is None


@pytest.mark.parametrize(
    ("gold_answers", "echo"),
    [(["Romania"], True), (["Romania", "of Romania"], True), (["Romania", "Romania City"], False), (["Rome"], False)],
)
def test_an_echo_is_a_match_whose_every_gold_answer_stands_in_the_question(gold_answers: list[str], echo: bool) -> None:
    found = labelled_answer("Romania City", gold_answers)
    assert found.echo is echo
    assert found.label == ("hallucinated" if gold_answers == ["Rome"] else "truthful")


@pytest.mark.parametrize(
    "answer",
    [
        "",
        " ?!",
        "🇷🇴",
        "I don't know.",
        "I don’t know",
        "I'm not sure, maybe Bucharest.",
        "I cannot answer that question.",
        "unknown",
        "Unknown.",
        "**Unknown**",
        "As an AI language model, I do not have opinions.",
        "I'm sorry, but I can't help with that. Bucharest?",
        "Sorry, I do not have this information.",
        "No idea",
        "N/A",
        "Not specified",
        "The author of The Valley is unknown.",
        "The father of Djer is not explicitly stated in the provided text.",
        "There is no reliable information about it.",
    ],
)
def test_refusals_and_empty_answers_abstain(answer: str) -> None:
    found = labelled_answer(answer, ["Bucharest"])
    assert found == Label("abstained", "exact_answer", None, False)


@pytest.mark.parametrize(
    "answer",
    [
        "The Unknown",
        "Unknown Pleasures",
        "I Don't Know How She Does It",
        "Sorry Seems to Be the Hardest Word",
        "No Country for Old Men",
        "Fear of the unknown",
        "He is unknown to many, but it is Sofia.",
        "I know it is Sofia",
    ],
)
def test_titles_and_other_answers_are_no_refusals(answer: str) -> None:
    assert labelled_answer(answer, ["Bucharest"]).label == "hallucinated"


def test_an_answer_whose_core_nobody_found_is_no_refusal() -> None:
    assert label("By Victor Hugo in 1862", None, QUESTION, ["Bucharest"], "exact_answer").label == "hallucinated"


@pytest.mark.parametrize("answer", ["Unknown", "I don't know", "No idea", "Sorry"])
def test_a_refusal_that_equals_a_gold_answer_is_the_answer(answer: str) -> None:
    assert labelled_answer(answer, ["Something", answer.lower()]).label == "truthful"


@pytest.mark.parametrize(
    ("match", "answer", "expected"),
    [
        ("exact_answer", "Sofia is the capital, while Bucharest is a town.", "hallucinated"),
        ("containment", "Sofia is the capital, while Bucharest is a town.", "truthful"),
        ("exact", "It is Bucharest.", "hallucinated"),
        ("exact", "Bucharest!", "truthful"),
    ],
)
def test_the_way_of_matching_is_a_setting(match: Any, answer: str, expected: str) -> None:
    assert labelled_answer(answer, ["Bucharest"], match=match).label == expected


@pytest.mark.parametrize(
    ("answer", "judged", "expected", "source"),
    [
        ("The city on the Dâmbovița", "truthful", "truthful", "llm"),
        ("Bucharest", "hallucinated", "hallucinated", "llm"),
        ("Bucharest", None, "truthful", "exact_answer"),  # its replies could not be used
        ("I don't know", "truthful", "abstained", "exact_answer"),
    ],
)
def test_a_language_model_judges_all_answers_but_those_that_abstain(
    answer: str, judged: str | None, expected: str, source: str
) -> None:
    found = labelled_answer(answer, ["Bucharest"], match="llm", judged=judged)
    assert (found.label, found.source) == (expected, source)
    assert labelled_answer(answer, ["Bucharest"], judged=judged) == labelled_answer(answer, ["Bucharest"])


@given(st.text(max_size=20), st.lists(st.text(max_size=8), max_size=5), st.randoms())
def test_the_order_of_gold_answers_decides_nothing_but_which_is_named(
    answer: str, gold_answers: list[str], chance: random.Random
) -> None:
    shuffled = chance.sample(gold_answers, len(gold_answers))
    one, other = labelled_answer(answer, gold_answers), labelled_answer(answer, shuffled)
    assert (one.label, one.echo) == (other.label, other.echo)


# The stage: from the shards' answers to one table.

PROVENANCE = {"code": "c0de", "model_revision": "1234", "settings": {"model": "tiny"}, "stage": "inference"}


def answer_row(number: int, answer: str, **changes: Any) -> dict[str, Any]:
    span = span_by_rules(answer, QUESTION)
    row = {
        "model": "tiny",
        "dataset": "capitals",
        "extractor": "auto",
        "question_id": f"q{number}",
        "split": "train",
        "question": QUESTION,
        "gold_answers": ["Bucharest", "Romania"],
        "answer": answer,
        "answer_ids": [1],
        "prompt_tokens": 5,
        "exact_question": [{"start": 12, "end": 19, "text": "capital"}],
        "exact_answer": {"start": span.start, "end": span.end, "text": span.text_in(answer)} if span else None,
        "clean_row": number,
    }
    return row | changes


def write_answers(path: Path, answers: list[str], provenance: dict[str, Any] = PROVENANCE, **changes: Any) -> Path:
    rows = [answer_row(number, answer, **changes) for number, answer in enumerate(answers)]
    write_table(path, rows, ANSWERS, {"provenance": provenance})
    return path


@pytest.fixture(scope="module")
def script() -> ModuleType:
    path = Path(__file__).parents[2] / "scripts" / "labels.py"
    spec = importlib.util.spec_from_file_location("labels_script", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def run(
    script: ModuleType,
    answers: list[Path],
    out: Path,
    match: str = "exact_answer",
    judgements: Path | None = None,
    given_labels: tuple[Path, ...] = (),
) -> None:
    settings = json.dumps({"labels": {"match": match}, "bad_rows": 0.0})
    script.main(
        Namespace(answers=answers, settings=settings, judgements=judgements, given_labels=given_labels, out=out)
    )


def test_the_labels_of_all_shards_come_into_one_table(
    script: ModuleType, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    first = write_answers(tmp_path / "0.parquet", ["Bucharest", "Sofia", "Romania"])
    second = write_answers(
        tmp_path / "1.parquet",
        ["I don't know", "Sofia is it, while Bucharest is a town."],
        exclusion="truncated_answer",
    )
    with caplog.at_level(logging.INFO, "deltap"):
        run(script, [first, second], tmp_path / "labels.parquet")
    rows = read_table(tmp_path / "labels.parquet", LABELS).to_pylist()
    assert [(row["shard"], row["clean_row"], row["label"]) for row in rows] == [
        (0, 0, "truthful"),
        (0, 1, "hallucinated"),
        (0, 2, "truthful"),
        (1, 0, "abstained"),
        (1, 1, "hallucinated"),
    ]
    assert [row["matched_alias"] for row in rows] == ["Bucharest", None, "Romania", None, None]
    assert [row["echo"] for row in rows] == [False, False, True, False, False]
    assert [row["label_by_containment"] for row in rows][-2:] == ["abstained", "truthful"]
    assert {row["label_source"] for row in rows} == {"exact_answer"}
    metadata = read_metadata(tmp_path / "labels.parquet")
    assert metadata["provenance"]["inputs"] == PROVENANCE
    assert metadata["counts"] == {
        "answers": 5,
        "labels": {"truthful": 2, "hallucinated": 2, "abstained": 1},
        "samples": {"truthful": 2, "hallucinated": 1},
        "exclusions": {"truncated_answer": 2},
        "echoes": 1,
        "truthful_by_match": {"exact_answer": 2, "containment": 3, "exact": 2},
        "agreement": {"exact_answer/containment": 0.75, "exact_answer/exact": 1.0, "containment/exact": 0.75},
    }
    assert "5 answers: 2 truthful, 2 hallucinated, 1 abstained" in caplog.text
    assert "2 truncated_answer" in caplog.text


def test_judgements_count_by_question_and_their_agreement_is_told(script: ModuleType, tmp_path: Path) -> None:
    answers = write_answers(tmp_path / "0.parquet", ["Bucharest", "Sofia", "the same city", "unknown"])
    judged = ["truthful", "truthful", None, None]
    rows = [
        {"model": "tiny", "dataset": "capitals", "extractor": "auto", "question_id": f"q{number}", "label": label}
        for number, label in enumerate(judged)
    ]
    write_table(tmp_path / "judgements.parquet", rows, JUDGEMENTS, {})
    run(script, [answers], tmp_path / "labels.parquet", "llm", tmp_path / "judgements.parquet")
    found = read_table(tmp_path / "labels.parquet", LABELS).to_pylist()
    assert [(row["label"], row["label_source"], row["label_by_llm"]) for row in found] == [
        ("truthful", "llm", "truthful"),
        ("truthful", "llm", "truthful"),
        ("hallucinated", "exact_answer", None),
        ("abstained", "exact_answer", None),
    ]
    agreement = read_metadata(tmp_path / "labels.parquet")["counts"]["agreement"]
    assert agreement["exact_answer/llm"] == 0.5


def test_given_labels_replace_the_others_and_an_answer_without_one_is_excluded(
    script: ModuleType, tmp_path: Path
) -> None:
    answers = write_answers(tmp_path / "0.parquet", ["Bucharest", "Sofia", "Rome", "Oslo"])
    labels = tmp_path / "labels.csv"
    labels.write_text(
        "question_id,answer,label\nq0,Bucharest,hallucinated\nq1,,truthful\nq2,Paris,truthful\n", encoding="utf-8"
    )
    run(script, [answers], tmp_path / "labels.parquet", given_labels=(labels,))
    found = read_table(tmp_path / "labels.parquet", LABELS).to_pylist()
    assert [(row["label"], row["label_source"], row["exclusion"]) for row in found] == [
        ("hallucinated", "given", None),
        ("truthful", "given", None),
        ("abstained", "given", "no_given_label"),  # the label is for another answer
        ("abstained", "given", "no_given_label"),
    ]


def test_a_given_label_that_is_none_is_refused_with_file_and_line(script: ModuleType, tmp_path: Path) -> None:
    answers = write_answers(tmp_path / "0.parquet", ["Bucharest"])
    (tmp_path / "labels.csv").write_text("question_id,label\nq0,yes\n", encoding="utf-8")
    with pytest.raises(DeltapError, match=r"labels\.csv:2: label: 'yes' is none of truthful, hallucinated, abstained"):
        run(script, [answers], tmp_path / "labels.parquet", given_labels=(tmp_path / "labels.csv",))


def test_an_empty_shard_is_no_error(script: ModuleType, tmp_path: Path) -> None:
    run(script, [write_answers(tmp_path / "0.parquet", [])], tmp_path / "labels.parquet")
    assert read_metadata(tmp_path / "labels.parquet")["counts"]["agreement"]["exact_answer/exact"] is None


@pytest.mark.parametrize(
    ("changed", "named"),
    [
        ({"model_revision": "5678"}, "model_revision is '1234' and '5678'"),
        ({"code": "d1ff"}, "code is 'c0de' and 'd1ff'"),
        ({"settings": {"model": "huge"}}, "settings.model is 'tiny' and 'huge'"),
    ],
)
def test_shards_of_different_origin_are_refused_by_name(
    script: ModuleType, tmp_path: Path, changed: dict[str, Any], named: str
) -> None:
    shards = [
        write_answers(tmp_path / "0.parquet", ["Rome"]),
        write_answers(tmp_path / "1.parquet", ["Rome"], PROVENANCE | changed),
    ]
    with pytest.raises(DeltapError, match=named) as refusal:
        run(script, shards, tmp_path / "labels.parquet")
    assert "1.parquet" in str(refusal.value)
    assert not (tmp_path / "labels.parquet").exists()


@pytest.mark.parametrize("column", ["model", "dataset", "extractor"])
def test_shards_that_mix_models_or_data_sets_are_refused_by_name(
    script: ModuleType, tmp_path: Path, column: str
) -> None:
    shards = [
        write_answers(tmp_path / "0.parquet", ["Rome"]),
        write_answers(tmp_path / "1.parquet", ["Rome"], **{column: "other"}),
    ]
    with pytest.raises(DeltapError, match=f"mix {column}s: .*other"):
        run(script, shards, tmp_path / "labels.parquet")


def test_counts_add_up(tmp_path: Path) -> None:
    answers = read_table(write_answers(tmp_path / "0.parquet", ["Bucharest", "Sofia", "", "unknown"]), ANSWERS)
    found = counts([labelled(answers, 0, LabelSettings())])
    assert sum(found["labels"].values()) == found["answers"] == 4
