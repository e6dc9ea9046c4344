"""Which questions the filters of a data set's entry leave, and what they refuse."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from deltap.errors import DeltapError
from deltap.questions.build import question_table
from deltap.questions.filters import FILTERS, filtered, listed_ids
from deltap.questions.question import Question
from deltap.questions.source import check_file
from deltap.settings import DatasetEntry, DatasetSource, QuestionsStage

QUESTIONS = [
    Question("1", "Who rules Arania?", ("Ann",), popularity=10, question_type="bridge"),
    Question("2", "Who rules Belbury?", ("Bob",), popularity=20, question_type="bridge"),
    Question("3", "Who rules Corcia?", ("Cat",), popularity=30, question_type="comparison"),
    Question("4", "Is Dundor old?", ("no",), popularity=40, question_type="comparison"),
    Question("5", "Who rules Elven?", ("Eve",)),
]


def entry(**keys: Any) -> DatasetSource:
    return DatasetSource.model_validate({"path": "questions.jsonl", **keys})


def left(**keys: Any) -> list[str]:
    kept, _ = filtered(QUESTIONS, entry(**keys), "mine")
    return [question.question_id for question in kept]


@pytest.mark.parametrize(
    ("keys", "expected"),
    [
        ({}, "12345"),
        ({"types": ["bridge"]}, "12"),
        ({"types": ["comparison", "bridge"]}, "1234"),
        ({"popularity": {"min": 20}}, "234"),
        ({"popularity": {"max": 20}}, "12"),
        ({"popularity": {"min": 20, "max": 30}}, "23"),
        ({"ids": ["5", "3"]}, "35"),
        ({"ids": [5, 3]}, "35"),  # YAML reads bare digits as numbers
        ({"yes_no": False}, "1235"),
        ({"types": ["comparison"], "popularity": {"max": 30}, "yes_no": False}, "3"),
    ],
)
def test_a_filter_keeps_what_it_names_in_the_order_of_the_file(keys: dict[str, Any], expected: str) -> None:
    assert "".join(left(**keys)) == expected


def test_every_question_left_out_is_counted_by_the_first_filter_that_it_does_not_pass() -> None:
    keys = {"ids": [1, 2, 3, 4], "types": ["comparison"], "popularity": {"max": 35}}
    kept, left_out = filtered(QUESTIONS, entry(**keys), "mine")
    assert left_out == {"ids": 1, "types": 2, "popularity": 1, "yes_no": 0}
    assert tuple(left_out) == FILTERS
    assert len(kept) == len(QUESTIONS) - sum(left_out.values())


@given(st.sets(st.sampled_from([question.question_id for question in QUESTIONS]), min_size=1))
def test_a_list_of_ids_and_a_file_of_them_say_the_same(chosen: set[str]) -> None:
    assert left(ids=sorted(chosen)) == sorted(chosen)
    assert left(ids=sorted(chosen, reverse=True)) == sorted(chosen)


def test_a_file_has_one_id_per_line_in_any_order(tmp_path: Path) -> None:
    path = tmp_path / "ids.txt"
    path.write_bytes(b"\xef\xbb\xbf3\r\n\r\n  1 \n")
    assert left(ids_file=str(path)) == ["1", "3"]
    assert listed_ids(entry(), "mine") is None


@pytest.mark.parametrize(
    ("content", "message"), [(b"\n \n", "has no id; write one per line"), (b"\xff", "cannot be read")]
)
def test_a_file_without_ids_is_refused_by_name(tmp_path: Path, content: bytes, message: str) -> None:
    (tmp_path / "ids.txt").write_bytes(content)
    with pytest.raises(DeltapError, match=rf"data set mine: ids_file .*ids\.txt {message}"):
        left(ids_file=str(tmp_path / "ids.txt"))


def test_a_missing_file_of_ids_is_found_before_anything_runs(tmp_path: Path) -> None:
    (tmp_path / "questions.jsonl").touch()
    (tmp_path / "chosen.txt").touch()
    wrong = entry(path=str(tmp_path / "questions.jsonl"), ids_file=str(tmp_path / "chose.txt"))
    with pytest.raises(DeltapError, match=r"data set mine: no file .*chose\.txt; did you mean 'chosen\.txt'\?"):
        check_file(wrong, "mine")


def test_an_id_that_is_not_in_the_set_is_refused_by_name() -> None:
    with pytest.raises(DeltapError, match="data set mine: no usable row has the id 'test_3'"):
        left(ids=["1", "test_3"])
    with pytest.raises(DeltapError, match="'x0', 'x1', 'x2', 'x3', 'x4' and 3 more"):
        left(ids=[f"x{number}" for number in range(8)])


def test_the_nearest_id_is_named() -> None:
    several = [Question(f"test_{number}", f"q{number}", ("a",)) for number in (10, 20)]
    with pytest.raises(DeltapError, match=r"the id 'tset_10' .*did you mean 'test_10'\?"):
        filtered(several, entry(ids=["tset_10"]), "mine")


def test_a_type_that_no_question_has_is_refused_with_the_nearest() -> None:
    with pytest.raises(DeltapError, match=r"types: .*'brige'; did you mean 'bridge'\? \(valid: bridge, comparison\)"):
        left(types=["bridge", "brige"])
    with pytest.raises(DeltapError, match=r"types: .*'bridge' \(valid: none\)"):
        filtered(QUESTIONS[4:], entry(types=["bridge"]), "mine")


@pytest.mark.parametrize(
    ("keys", "questions", "message"),
    [
        ({"popularity": {"min": 50}}, QUESTIONS, "filter 'popularity'; .* the 5 .*their popularity is 10 to 40"),
        ({"popularity": {"min": 0}}, QUESTIONS[4:], "filter 'popularity'; .*none of them has a popularity"),
        ({"yes_no": False}, QUESTIONS[3:4], "filter 'yes_no'; it leaves out all of the 1"),
        ({"ids": [5], "types": ["bridge"]}, QUESTIONS, "filter 'types'; it leaves out all of the 1"),
    ],
)
def test_a_filter_that_leaves_nothing_is_named(keys: dict[str, Any], questions: list[Question], message: str) -> None:
    with pytest.raises(DeltapError, match=f"data set mine: no question is left by the {message}"):
        filtered(questions, entry(**keys), "mine")


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"popularity": {}}, "give min, max or both"),
        ({"popularity": {"min": 3, "max": 2}}, "min 3 is larger than max 2"),
        ({"ids": ["1"], "ids_file": "ids.txt"}, "give ids or ids_file, not both"),
        ({"ids": []}, "at least 1 item"),
        ({"types": []}, "at least 1 item"),
    ],
)
def test_filters_that_cannot_be_meant_are_refused(keys: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        DatasetEntry.model_validate({"label": "Mine", "path": "questions.jsonl", **keys})


def stage(path: Path, **keys: Any) -> QuestionsStage:
    entry = {"format": "table", "path": str(path), **keys}
    return QuestionsStage.model_validate({"dataset": "mine", "entry": entry, "questions": {}, "examples": []})


def test_the_questions_table_counts_what_the_filters_leave_out(tmp_path: Path) -> None:
    rows = [
        {
            "id": number,
            "question": f"q {number}",
            "answer": "a",
            "popularity": number,
            "question_type": "ab"[number % 2],
        }
        for number in range(120)
    ]
    path = tmp_path / "questions.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    table, counts = question_table(stage(path, types=["b"], popularity={"min": 20, "max": 99}))
    assert {row["question_id"] for row in table} == {str(number) for number in range(21, 100, 2)}
    assert counts["dropped"]["types"] == 60
    assert counts["dropped"]["popularity"] == 20
    assert counts["questions"] == counts["rows"] - sum(counts["dropped"].values()) == 40


def test_a_filter_moves_no_question_to_another_split(tmp_path: Path) -> None:
    path = tmp_path / "questions.jsonl"
    path.write_text("".join(json.dumps({"id": n, "question": f"q {n}", "answer": "a"}) + "\n" for n in range(120)))
    everything, half = (question_table(stage(path, **keys))[0] for keys in ({}, {"ids": list(range(60))}))
    splits = {row["question_id"]: (row["split"], row["hash"]) for row in everything}
    assert len(half) == 60
    assert all(splits[row["question_id"]] == (row["split"], row["hash"]) for row in half)


def test_the_bridge_questions_of_the_real_hotpotqa(shared_data: Path) -> None:
    source = {"format": "hotpotqa", "path": str(shared_data / "hotpotqa.simplified.json"), "types": ["bridge"]}
    bridge = QuestionsStage.model_validate({"dataset": "hotpotqa", "entry": source, "questions": {}, "examples": []})
    table, counts = question_table(bridge)
    assert {row["question_type"] for row in table} == {"bridge"}
    assert counts["dropped"]["types"] == 1000 - len(table)
