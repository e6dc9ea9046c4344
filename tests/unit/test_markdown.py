"""Markdown tables for reports."""

from hypothesis import given
from hypothesis import strategies as st

from deltap import markdown


def test_a_table_is_padded_and_its_numbers_stand_on_the_right() -> None:
    assert markdown.table(["name", "n", "share"], [["a|b", 1, "5.0%"], ["c", 100, "–"]]) == (
        "| name |   n | share |\n| ---- | --: | ----: |\n| a\\|b |   1 |  5.0% |\n| c    | 100 |     – |\n"
    )


@given(st.lists(st.tuples(st.text(max_size=8), st.integers()), max_size=4))
def test_no_text_breaks_a_table(rows: list[tuple[str, int]]) -> None:
    lines = markdown.table(["a", "b"], rows).split("\n")[:-1]
    assert len(lines) == 2 + len(rows)
    for line in lines:
        assert line.replace("\\\\", "").replace("\\|", "").count("|") == 3


def test_numbers_that_are_not_there_are_dashes() -> None:
    assert [markdown.share(0.125), markdown.share(None)] == ["12.5%", "–"]
    assert [markdown.mean(2.25), markdown.mean(None)] == ["2.2", "–"]
