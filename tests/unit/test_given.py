"""Files that replace a stage: whose rows count, and what is refused."""

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from deltap.errors import DeltapError
from deltap.exact.found import NamedSpans
from deltap.given import read_answers, read_labels, read_spans

QUESTIONS = [
    {"question_id": "a", "question": "Who wrote Emma?"},
    {"question_id": "7", "question": "What is the capital of Peru?"},
]


def write(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8")
    return path


def answers(*paths: Path, model: str = "m", dataset: str = "d", bad_rows: float = 0) -> list[str | None]:
    found = read_answers(paths, QUESTIONS, model, dataset, bad_rows)
    return [found.find(question) for question in QUESTIONS]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.csv", "question_id,answer\na,Austen\n7,Lima\n"),
        ("a.tsv", "answer\tquestion_id\nAusten\ta\nLima\t7\n"),
        ("a.jsonl", '{"question_id": "a", "answer": "Austen"}\n{"question_id": 7, "answer": "Lima"}\n'),
        ("a.json", '[{"question": "who wrote EMMA", "answer": "Austen"}, {"question_id": 7, "answer": "Lima"}]'),
    ],
)
def test_rows_are_found_by_id_or_by_the_questions_words(tmp_path: Path, name: str, text: str) -> None:
    assert answers(write(tmp_path / name, text)) == ["Austen", "Lima"]
    (tmp_path / f"{name}.gz").write_bytes(gzip.compress(text.encode()))
    assert answers(tmp_path / f"{name}.gz") == ["Austen", "Lima"]


def test_rows_count_for_the_model_and_data_set_that_they_name(tmp_path: Path) -> None:
    rows = [
        {"question_id": "a", "dataset": "d", "model": "m", "answer": "Austen"},
        {"question_id": "a", "dataset": "d", "model": "n", "answer": "Brontë"},
        {"question_id": "7", "dataset": "e", "model": "", "answer": "Quito"},
    ]
    path = write(tmp_path / "a.json", json.dumps(rows))
    assert answers(path) == ["Austen", None]
    assert answers(path, model="n") == ["Brontë", None]
    assert answers(path, dataset="e") == [None, "Quito"]
    # Nothing is said about this one, so that its own stage runs.
    assert not read_answers([path], QUESTIONS, "m", "f", 0)
    assert read_answers([path], QUESTIONS, "m", "d", 0)


def test_an_answer_may_be_empty_but_a_label_may_not(tmp_path: Path) -> None:
    assert answers(write(tmp_path / "a.csv", "question_id,answer\na,\n")) == ["", None]
    with pytest.raises(DeltapError, match="label: '' is none of truthful, hallucinated, abstained"):
        read_labels([write(tmp_path / "l.csv", "question_id,label\na,\n")], QUESTIONS, "m", "d", 0)


def test_spans_and_labels_may_be_for_one_answer_only(tmp_path: Path) -> None:
    rows = [
        {
            "question_id": "a",
            "answer": "By Jane Austen.",
            "exact_question": ["wrote", "Emma"],
            "exact_answer": "Austen",
        },
        {"question_id": "a", "answer": "Brontë", "exact_answer": "Brontë"},
    ]
    found = read_spans([write(tmp_path / "s.json", json.dumps(rows))], QUESTIONS, "m", "d", 0)
    assert found.find(QUESTIONS[0], "by jane austen") == NamedSpans(("wrote", "Emma"), "Austen")
    assert found.find(QUESTIONS[0], "Brontë") == NamedSpans((), "Brontë")
    assert found.find(QUESTIONS[0], "Dickens") is None
    assert len(found.find_all(QUESTIONS[0])) == 2


def test_a_row_for_this_very_answer_comes_before_one_for_any(tmp_path: Path) -> None:
    path = write(tmp_path / "l.csv", "question_id,answer,label\na,,hallucinated\na,Austen,truthful\n")
    found = read_labels([path], QUESTIONS, "m", "d", 0)
    assert [found.find(QUESTIONS[0], answer) for answer in ("austen", "Dickens")] == ["truthful", "hallucinated"]


@pytest.mark.parametrize("cell", ['["wrote", "Emma"]', "['wrote', 'Emma']"])
def test_lists_in_cells_are_read(tmp_path: Path, cell: str) -> None:
    path = write(tmp_path / "s.tsv", f"question_id\texact_question\na\t{cell}\n")
    found = read_spans([path], QUESTIONS, "m", "d", 0).find(QUESTIONS[0])
    assert found == NamedSpans(("wrote", "Emma"), None)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("id,answer\na,x\n", r"a\.csv: found the columns 'id', 'answer'; expected question_id or question, and answer"),
        (
            "question_id,text\na,x\n",
            r"found the columns 'question_id', 'text'; expected question_id or question, and ans",
        ),
        ("question_id,answer\nz,x\ny,x\n", r"none of its 2 rows belongs to a question of d; check question_id"),
        ("question_id,answer\na,x\na,y\n", r"a\.csv:3: says something else than .*a\.csv:2 about the same question"),
        # One row by its id, another by its words.
        ("question_id,question,answer\na,,x\n,who wrote Emma?,y\n", r"a\.csv:3: says something else than .*a\.csv:2"),
        (
            "question_id,question,answer\na,What is the capital of Peru?,x\n",
            r"a\.csv:2: question_id 'a' is another question here: 'who wrote emma'",
        ),
        ("question_id,answer\na,x\n,y\n", r"1 of 2 rows cannot be used, more than the share that given\.bad_rows"),
    ],
)
def test_what_cannot_be_meant_is_refused_with_the_place(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(DeltapError, match=message):
        answers(write(tmp_path / "a.csv", text))


def test_a_few_bad_rows_are_left_out(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    rows: list[Any] = [{"question_id": "a", "answer": "Austen"}, "nonsense", {"answer": "x"}]
    path = write(tmp_path / "a.json", json.dumps(rows))
    assert answers(path, bad_rows=0.7) == ["Austen", None]
    assert "a.json, element 2: expected an object with columns" in caplog.text
    assert "element 3: neither question_id nor question" in caplog.text


def test_an_id_of_elsewhere_does_not_hinder_the_words(tmp_path: Path) -> None:
    assert answers(write(tmp_path / "a.csv", "question_id,question,answer\ntest_1,Who wrote Emma?,x\n")) == ["x", None]


def test_the_same_row_twice_is_no_contradiction(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", "question_id,answer\na,Austen\na,Austen\n")
    assert answers(path, path) == ["Austen", None]
