"""From rows of every format to questions; bad rows, ids and columns."""

import csv
import gzip
import io
import json
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any, get_args

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from deltap.errors import DeltapError
from deltap.questions.question import Question
from deltap.questions.reading import Reading, read_questions
from deltap.questions.shapes import FORMATS
from deltap.questions.source import check_file
from deltap.settings import DatasetSource

POPQA: dict[str, Any] = {
    "id": 4222362,
    "subj": "George Rankin",
    "prop": "occupation",
    "obj": "politician",
    "s_pop": 142,
    "question": "What is George Rankin's occupation?",
    "possible_answers": '["politician", "political leader", "\\ud83c\\uddff\\ud83c\\udde6"]',
}
TRIVIAQA: dict[str, Any] = {
    "Question": 'Who wrote "Emma"?',
    "QuestionId": "tc_1",
    "Answer": {"Value": "Jane Austen", "Aliases": ["Austen", "Jane Austen", ""], "Type": "WikipediaEntity"},
    "SearchResults": [{"Title": "long"}],
}
TRIVIAQA_HUB: dict[str, Any] = {
    "question": 'Who wrote "Emma"?',
    "question_id": "tc_1",
    "answer": {"value": "Jane Austen", "aliases": ["Austen", "Jane Austen"], "type": "WikipediaEntity"},
    "search_results": {"title": ["long"]},
}
HOTPOTQA: dict[str, Any] = {
    "id": "5a8b57f25542995d1e6f1371",
    "question": "Were Scott Derrickson and Ed Wood of the same nationality?",
    "answer": "yes",
    "type": "comparison",
    "level": "hard",
    "context": {"title": ["long"]},
}
NQ: dict[str, Any] = {
    "question": "when was the last time anyone was on the moon",
    "answer": ["14 December 1972 UTC", "December 1972"],
}


def flashrag(question: str, answers: list[str], **metadata: Any) -> dict[str, Any]:
    return {"id": "test_1", "question": question, "golden_answers": answers, "metadata": metadata}


# For each format, the rows people have, all of the same question.
FORMS: dict[str, list[dict[str, Any]]] = {
    "popqa": [
        POPQA,
        flashrag(
            POPQA["question"],
            json.loads(POPQA["possible_answers"]),
            subj="George Rankin",
            prop="occupation",
            s_pop=142,
            obj="politician",
        ),
    ],
    "triviaqa": [
        TRIVIAQA,
        TRIVIAQA_HUB,
        flashrag('"Who wrote ""Emma""?"', ["Jane Austen", "Austen"], source="web"),
    ],
    "hotpotqa": [HOTPOTQA, flashrag(HOTPOTQA["question"], ["yes"], type="comparison", context={"title": ["long"]})],
    "nq": [NQ, flashrag(NQ["question"], NQ["answer"])],
}
EXPECTED: dict[str, dict[str, Any]] = {
    "popqa": {
        "question": "What is George Rankin's occupation?",
        "gold_answers": ("politician", "political leader", "🇿🇦"),
        "subject": "George Rankin",
        "property": "occupation",
        "popularity": 142.0,
    },
    "triviaqa": {"question": 'Who wrote "Emma"?', "gold_answers": ("Jane Austen", "Austen")},
    "hotpotqa": {"question": HOTPOTQA["question"], "gold_answers": ("yes",), "question_type": "comparison"},
    "nq": {"question": NQ["question"], "gold_answers": ("14 December 1972 UTC", "December 1972")},
}


def as_json_lines(row: dict) -> bytes:
    return (json.dumps(row) + "\n").encode()


def as_csv(encode: Callable[[Any], str], delimiter: str = ",") -> Callable[[dict], bytes]:
    def write(row: dict) -> bytes:
        stream = io.StringIO(newline="")
        writer = csv.writer(stream, delimiter=delimiter)
        writer.writerow(row)
        writer.writerow([encode(value) if isinstance(value, list | dict) else value for value in row.values()])
        return stream.getvalue().encode()

    return write


def as_parquet(row: dict) -> bytes:
    stream = io.BytesIO()
    # Parquet knows no mapping without fields.
    pq.write_table(pa.Table.from_pylist([{name: value for name, value in row.items() if value != {}}]), stream)
    return stream.getvalue()


CONTAINERS: dict[str, Callable[[dict], bytes]] = {
    "jsonl": as_json_lines,
    "json": lambda row: json.dumps([row]).encode(),
    "parquet": as_parquet,
    "csv": as_csv(json.dumps),
    "python.csv": as_csv(repr),
    "tsv": as_csv(json.dumps, "\t"),
}


def read(path: Path, content: bytes | str, bad_share: float = 0.0, **entry: Any) -> Reading:
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return read_questions(DatasetSource(path=str(path), **entry), "set", bad_share)


def one(path: Path, content: bytes | str, **entry: Any) -> Question:
    (question,) = read(path, content, **entry).questions
    return question


@pytest.mark.parametrize("container", CONTAINERS)
@pytest.mark.parametrize(
    ("kind", "row"), [(kind, row) for kind, rows in FORMS.items() for row in rows], ids=lambda value: str(value)[:20]
)
def test_every_format_is_read_from_every_container(tmp_path: Path, kind: str, row: dict, container: str) -> None:
    content = CONTAINERS[container](row)
    for name, wrapped in ((f"q.{container}", content), (f"q.{container}.gz", gzip.compress(content))):
        question = one(tmp_path / name, wrapped, format=kind)
        for column, value in EXPECTED[kind].items():
            assert getattr(question, column) == value, column


def test_every_configurable_format_but_table_has_its_shapes() -> None:
    names = get_args(DatasetSource.model_fields["format"].annotation)
    assert {*FORMATS, "table"} == set(names) == {*FORMS, "table"}


def test_triviaqa_is_read_from_its_own_json(tmp_path: Path) -> None:
    question = one(tmp_path / "q.json", json.dumps({"Data": [TRIVIAQA], "Version": 1.0}), format="triviaqa")
    assert question.question_id == "tc_1"
    assert question.gold_answers == ("Jane Austen", "Austen")


def test_a_csv_of_numpy_lists_is_read_too(tmp_path: Path) -> None:
    answer = "{'value': 'Jane Austen', 'aliases': array(['Austen', \"J'A\"], dtype=object)}"
    content = as_csv(str)({"question": "Who?", "question_id": "1", "answer": answer})
    assert one(tmp_path / "q.csv", content, format="triviaqa").gold_answers == ("Jane Austen", "Austen", "J'A")
    content = as_csv(str)({"question": "who", "answer": "['one' \"two's\"]"})
    assert one(tmp_path / "q.csv", content, format="nq").gold_answers == ("one", "two's")


def test_other_fields_are_kept_as_json_and_passages_are_not(tmp_path: Path) -> None:
    question = one(tmp_path / "q.jsonl", as_json_lines(HOTPOTQA), format="hotpotqa")
    assert question.extra == '{"level": "hard"}'
    question = one(tmp_path / "q.json", json.dumps([TRIVIAQA]), format="triviaqa")
    assert question.extra == '{"Answer": {"Type": "WikipediaEntity"}}'
    question = one(tmp_path / "q.jsonl", as_json_lines(FORMS["popqa"][1]), format="popqa")
    assert question.extra == '{"metadata": {"obj": "politician"}}'
    question = one(tmp_path / "q.jsonl", as_json_lines(FORMS["hotpotqa"][1]), format="hotpotqa")
    assert question.extra == "{}"


def test_the_id_of_the_file_becomes_text(tmp_path: Path) -> None:
    assert one(tmp_path / "q.jsonl", as_json_lines(POPQA), format="popqa").question_id == "4222362"
    official = {key: value for key, value in HOTPOTQA.items() if key != "id"} | {"_id": "5a7a"}
    assert one(tmp_path / "q.json", json.dumps([official]), format="hotpotqa").question_id == "5a7a"


def test_without_an_id_it_comes_from_the_content_and_not_from_the_place(tmp_path: Path) -> None:
    other = {"question": "another one", "answer": "b"}
    together = read(tmp_path / "q.jsonl", as_json_lines(other) + as_json_lines(NQ), format="nq").questions
    alone = one(tmp_path / "q.csv", as_csv(json.dumps)(NQ | {"id": ""}), format="nq")
    assert alone.question_id == together[1].question_id != together[0].question_id
    assert alone.question_id.startswith("set-")
    assert len(alone.question_id) == len("set-") + 12


@pytest.mark.parametrize("answers", ["golden_answers", "gold_answers", "answers", "answer", "possible_answers"])
def test_a_table_finds_the_usual_names_by_itself(tmp_path: Path, answers: str) -> None:
    row = {"id": 7, "question": "Who?", answers: ["a", "b"], "subject": "s", "property": "p", "popularity": 2}
    question = one(tmp_path / "q.jsonl", as_json_lines(row))
    assert question == Question("7", "Who?", ("a", "b"), "s", "p", 2.0)


def test_a_table_takes_other_names_from_the_configuration(tmp_path: Path) -> None:
    row = {"q": "Who?", "a": {"text": ["x"]}, "n": "1", "topic": "t", "rel": "r", "views": "9", "kind": "k", "id": "no"}
    columns = {
        "question": "q",
        "gold_answers": "a.text",
        "question_id": "n",
        "subject": "topic",
        "property": "rel",
        "popularity": "views",
        "question_type": "kind",
    }
    question = one(tmp_path / "q.jsonl", as_json_lines(row), columns=columns)
    assert question == Question("1", "Who?", ("x",), "t", "r", 9.0, "k", '{"id": "no"}')


def test_a_configured_column_that_no_row_has_is_an_error_with_the_nearest_name(tmp_path: Path) -> None:
    row = as_json_lines({"question": "Who?", "answer": "a", "topic": "t"})
    with pytest.raises(DeltapError, match=r"q\.jsonl: no column 'topics' for subject; did you mean 'topic'"):
        read(tmp_path / "q.jsonl", row, columns={"subject": "topics"})


def test_a_configured_column_may_be_missing_in_some_rows(tmp_path: Path) -> None:
    rows = '{"question": "a", "answer": "b", "topic": "t"}\n{"question": "c", "answer": "d"}\n'
    found = read(tmp_path / "q.jsonl", rows, columns={"subject": "topic"})
    assert [question.subject for question in found.questions] == ["t", None]


@pytest.mark.parametrize(
    ("kind", "row", "message"),
    [
        (
            "popqa",
            NQ,
            "found the columns 'question', 'answer', expected 'question' and 'possible_answers', or 'question'",
        ),
        ("triviaqa", POPQA, "expected 'Question' and 'Answer', or 'question' and 'answer', or 'question' and 'golden"),
        (
            "table",
            TRIVIAQA,
            "found the columns 'Question', 'QuestionId', 'Answer', .* expected 'question' and 'gold_ans",
        ),
    ],
)
def test_a_wrong_format_names_the_columns_found_and_expected(
    tmp_path: Path, kind: str, row: dict, message: str
) -> None:
    with pytest.raises(DeltapError, match=message):
        read(tmp_path / "q.jsonl", as_json_lines(row), bad_share=1, format=kind)


def test_gold_answers_are_cleaned_and_keep_their_order(tmp_path: Path) -> None:
    row = {"question": "a", "answer": [" Rome ", "", "Roma", "Rome", "ROMA", "🇮🇹", "May\u00a013", '"The ""Urbs"""']}
    question = one(tmp_path / "q.jsonl", as_json_lines(row), format="nq")
    assert question.gold_answers == ("Rome", "Roma", "ROMA", "🇮🇹", "May 13", 'The "Urbs"')


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ({"question": "", "answer": "a"}, "no question"),
        ({"question": "?!", "answer": "a"}, "no question"),
        ({"question": None, "answer": "a"}, "no question"),
        ({"question": ["a"], "answer": "a"}, "question: expected text, found"),
        ({"question": "a", "answer": []}, "no answers"),
        ({"question": "a", "answer": ["", None]}, "no answers"),
        ({"question": "a", "answer": "🇿🇦"}, "no answers; only '🇿🇦' without a letter or digit"),
        ({"question": "a", "answer": {"value": "b"}}, "answer: expected text, found"),
        ({"question": "a", "answer": True}, "answer: expected text, found True"),
        ({"question": "a", "answer": "['b' ... 'c']"}, "answer: not a list that can be read"),
        ({"question": "a", "answer": "b", "popularity": "much"}, "popularity: expected a number"),
        ({"question": "a", "answer": "b", "id": {"x": 1}}, "id: expected text"),
        ({"question": "a \ud83c", "answer": "b"}, "text that is not Unicode"),
        ({"question": "a", "answer": ["\udfff", "b"]}, "text that is not Unicode"),
        ({"question": "a", "answer": "b", "note": "\ud83c"}, "text that is not Unicode"),
        ({"question": "a"}, "found the columns 'question', expected 'question' and 'answer'"),
        ([], "expected an object with columns, found a list"),
        ("text", "expected an object with columns, found a str"),
    ],
)
def test_a_row_that_cannot_be_used_is_left_out_with_its_place_and_reason(
    tmp_path: Path, caplog, row: Any, reason: str
) -> None:
    good = {"question": "who", "answer": "me"}
    path = tmp_path / "q.jsonl"
    content = b"".join(map(as_json_lines, (good, row)))
    found = read(path, content, bad_share=0.5, format="nq")
    assert (len(found.questions), found.rows, found.bad_rows) == (1, 2, 1)
    assert f"{path}:2: {reason}" in caplog.text
    with pytest.raises(DeltapError, match="1 of 2 rows cannot be used") as refusal:
        read(path, content, bad_share=0.4, format="nq")
    assert reason in str(refusal.value)
    str(refusal.value).encode()


def test_bytes_that_are_not_utf8_are_a_bad_row(tmp_path: Path) -> None:
    content = b'{"question": "who", "answer": "caf\xe9"}\n' + as_json_lines(NQ)
    assert read(tmp_path / "q.jsonl", content, bad_share=0.5, format="nq").bad_rows == 1


def test_the_first_ten_bad_rows_are_named_and_all_are_counted(tmp_path: Path, caplog) -> None:
    caplog.set_level(logging.WARNING)
    read(tmp_path / "q.jsonl", as_json_lines(NQ) + b'{"question": "a"}\n' * 25, bad_share=1, format="nq")
    assert caplog.text.count("left out: ") == 10
    assert "25 of 26 rows cannot be used and are left out" in caplog.text


def test_the_allowed_share_of_bad_rows_is_allowed_exactly(tmp_path: Path) -> None:
    good = "".join(json.dumps({"question": f"q {number}", "answer": "a"}) + "\n" for number in range(71))
    content = good + '{"question": ""}\n' * 29
    assert read(tmp_path / "q.jsonl", content, bad_share=0.29, format="nq").bad_rows == 29
    with pytest.raises(DeltapError, match=r"29 of 100 rows .* \(0\.28\)"):
        read(tmp_path / "q.jsonl", content, bad_share=0.28, format="nq")


@pytest.mark.parametrize("content", ["", "[]", "question,answer\n", '{"question": "", "answer": "a"}\n'])
def test_a_set_without_questions_is_an_error(tmp_path: Path, content: str) -> None:
    with pytest.raises(DeltapError, match=r"no questions"):
        read(tmp_path / "q", content, bad_share=1, format="nq")


def test_two_questions_with_one_id_are_an_error_that_names_both_lines(tmp_path: Path) -> None:
    rows = [{"id": "x", "question": "one", "answer": "a"}, {"id": "x", "question": "two", "answer": "a"}]
    path = tmp_path / "q.jsonl"
    with pytest.raises(DeltapError, match=r"two questions have the id 'x': .*q\.jsonl:1 and .*q\.jsonl:2"):
        read(path, b"".join(map(as_json_lines, rows)), format="nq")
    rows[1]["question"] = "One?"
    assert len(read(path, b"".join(map(as_json_lines, rows)), format="nq").questions) == 2


def test_a_file_that_does_not_exist_is_named_with_the_nearest_one(tmp_path: Path) -> None:
    (tmp_path / "popqa.tsv").touch()
    for call in (check_file, lambda entry, dataset: read_questions(entry, dataset, 0)):
        with pytest.raises(DeltapError, match=r"data set mine: no file .*popqa\.csv; did you mean 'popqa\.tsv'"):
            call(DatasetSource(path=str(tmp_path / "popqa.csv")), "mine")
    with pytest.raises(DeltapError, match=r"nothing in .* has a similar name"):
        check_file(DatasetSource(path=str(tmp_path / "xyz")), "mine")
    with pytest.raises(DeltapError, match="nor is there a folder"):
        check_file(DatasetSource(path=str(tmp_path / "none" / "popqa.tsv")), "mine")
    with pytest.raises(DeltapError, match="is a folder; give one of its files"):
        check_file(DatasetSource(path=str(tmp_path)), "mine")


def test_a_file_that_exists_and_a_set_of_the_hub_pass_the_check(tmp_path: Path) -> None:
    (tmp_path / "popqa.tsv").touch()
    check_file(DatasetSource(path=str(tmp_path / "popqa.tsv")), "mine")
    check_file(DatasetSource(hub="akariasai/PopQA", hub_split="test"), "mine")


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ({"path": "q.csv", "columns": {"topic": "t"}}, "columns"),
        ({"path": "q.csv", "format": "nq", "columns": {"question": "q"}}, "columns goes with the format table"),
        ({"path": "q.csv", "revision": "main"}, "go with hub"),
        ({"hub": "a/b"}, "hub needs hub_split"),
    ],
)
def test_keys_that_do_not_go_together_are_refused(entry: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        DatasetSource.model_validate(entry)
