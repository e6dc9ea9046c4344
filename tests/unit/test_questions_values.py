"""What the cells of a question file mean."""

import ast
import json

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from deltap.questions.rows import BadRow
from deltap.questions.values import as_json, lookup, mapping, number, text, texts, undamaged

# Texts that cleaning leaves alone and that are no written list or damaged quotation themselves.
plain = st.text(st.sampled_from("abcÅÆ日🇿🇦'\"\\,; ().!0"), min_size=1).filter(
    lambda value: value == " ".join(value.split()) and not value.startswith('"')
)


@given(st.lists(plain))
@example(["a'b", 'c"d', "e\\f", "g, h"])
def test_a_list_reads_the_same_as_itself_as_json_and_as_python(values: list[str]) -> None:
    for written in (values, json.dumps(values), json.dumps(values, ensure_ascii=False), repr(values)):
        assert texts(written, "answers") == values


@given(st.lists(plain, min_size=1))
def test_a_list_written_by_numpy_without_commas_keeps_its_texts_apart(values: list[str]) -> None:
    assert texts(f"[{' '.join(map(repr, values))}]", "answers") == values
    assert texts("[" + "\n ".join(map(repr, values)) + "]", "answers") == values


def test_python_itself_would_join_the_texts_of_a_numpy_list() -> None:
    assert ast.literal_eval("['Rome' 'Roma']") == ["RomeRoma"]
    assert texts("['Rome' 'Roma']", "answers") == ["Rome", "Roma"]


@pytest.mark.parametrize("written", ["[", "[sic", "12 [a]", "Rome, Roma", "Rome|Roma"])
def test_a_text_that_is_no_list_is_one_answer(written: str) -> None:
    assert texts(written, "answer") == [written]


@pytest.mark.parametrize("written", ["['a' 'b' ... 'c']", "[Rome, Roma]", "['a]", "[" * 100_000 + "]" * 100_000])
def test_a_list_that_cannot_be_read_is_a_bad_row(written: str) -> None:
    with pytest.raises(BadRow, match="answers"):
        texts(written, "answers")


def test_missing_and_empty_answers_are_left_out() -> None:
    assert texts([" Rome ", "", None, " \t", "Roma", float("nan")], "answers") == ["Rome", "Roma"]
    assert texts(None, "answers") == texts("", "answers") == texts("[]", "answers") == []


def test_numbers_become_text() -> None:
    assert texts([1972, 3.5, 4.0], "answers") == ["1972", "3.5", "4"]
    assert texts("[1972]", "answers") == ["1972"]


@pytest.mark.parametrize("value", [True, {"a": 1}, [["nested"]], b"bytes"])
def test_other_types_are_a_bad_row_that_names_the_column(value: object) -> None:
    with pytest.raises(BadRow, match="answers: expected text"):
        texts(value, "answers")


def test_line_breaks_tabs_and_control_characters_become_one_blank() -> None:
    assert text(" Who\twas\r\n\x00 the\u2028first\xa0 king? \n", "question") == "Who was the first king?"


@given(st.text(st.sampled_from('ab ?".'), min_size=1).map(lambda value: " ".join(value.split())))
def test_the_quoting_of_a_csv_cell_is_undone(value: str) -> None:
    written = '"' + value.replace('"', '""') + '"'
    if '"' in value:
        assert undamaged(written) == value.strip()


@pytest.mark.parametrize(
    "value",
    [
        '"Emma"',
        '"',
        '""',
        'a sequel to "", which aired',
        '"A" or "B"',
        '""Hi""',
        '"Emma" is by whom?',
        "",
        '"a ""b" c"',
    ],
)
def test_other_quotes_stay_as_they_are(value: str) -> None:
    assert undamaged(value) == value


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ('{"value": "a", "aliases": ["b"]}', {"value": "a", "aliases": ["b"]}),
        ("{'value': \"it's\", 'aliases': []}", {"value": "it's", "aliases": []}),
        (
            "{'aliases': array([\"a'x\", 'b',\n       'c'], dtype=object), 'none': array([], dtype=object)}",
            {"aliases": ["a'x", "b", "c"], "none": []},
        ),
        ("{broken", {}),
        ("Rome", {}),
        (None, {}),
    ],
)
def test_a_mapping_is_read_however_a_csv_writer_wrote_it(written: str | None, expected: dict) -> None:
    assert mapping(written) == expected


def test_a_dot_reaches_into_a_column_unless_the_column_is_so_called() -> None:
    fields = {"answer": {"value": "Rome", "more": '{"deep": "Roma"}'}, "a.b": "literal"}
    assert lookup(fields, "answer.value") == "Rome"
    assert lookup(fields, "answer.more.deep") == "Roma"
    assert lookup(fields, "a.b") == "literal"
    assert lookup(fields, "answer.missing") is lookup(fields, "x.y") is lookup(fields, "x") is None


@pytest.mark.parametrize(("value", "expected"), [("1381", 1381.0), (5, 5.0), (" 2.5 ", 2.5), ("", None), (None, None)])
def test_numbers_are_read_from_text_too(value: object, expected: float | None) -> None:
    assert number(value, "s_pop") == expected


def test_a_number_that_is_not_finite_is_missing() -> None:
    assert number(float("nan"), "s_pop") is number("inf", "s_pop") is None


@pytest.mark.parametrize("value", ["many", True, [1], 10**400])
def test_a_value_that_is_no_number_is_a_bad_row(value: object) -> None:
    with pytest.raises(BadRow, match="s_pop: expected a number"):
        number(value, "s_pop")


def test_json_of_other_fields_has_sorted_keys_and_is_strict() -> None:
    written = as_json({"b": [float("nan"), 1], "a": {"é": b"x"}})
    assert written == '{"a": {"é": "b\'x\'"}, "b": [null, 1]}'
