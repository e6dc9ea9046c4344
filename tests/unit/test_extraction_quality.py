"""The quality report of the exact tokens, against numbers worked out by hand and on real questions."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from deltap.exact.question import exact_question
from deltap.extraction_quality import ANY, WORST, against_fields, agreements, by_source, report, worst
from deltap.questions.build import question_table
from deltap.settings import QuestionsStage
from deltap.tables import EXTRACTION, EXTRACTION_FIELDS, LABELS


def spans(*lengths: int) -> list[dict[str, Any]]:
    return [{"start": 0, "end": length, "text": "x" * length} for length in lengths]


def answer_row(
    source: str | None, lengths: tuple[int, ...], tokens: int, answer: str, core: int, **columns: Any
) -> dict:
    return {
        "model": "tiny",
        "dataset": "capitals",
        "extractor": "auto",
        "question_id": "1",
        "answer": answer,
        "exact_question": spans(*lengths),
        "exact_question_source": source,
        "exact_question_tokens": list(range(tokens)),
        "exact_answer": spans(core)[0] if core else None,
        "exact_answer_source": "rules" if core else None,
        "exact_answer_tokens": list(range(core // 2)),
        **columns,
    }


ROWS = [
    answer_row("fields", (6, 10), 4, "Rome is it", 4),
    answer_row("fields", (8,), 2, "Rome", 4),
    answer_row("rules", (3, 3, 6), 6, "", 0),
    answer_row(None, (), 0, "?", 0),
]


def table(*rows: dict) -> pa.Table:
    return pa.Table.from_pylist(list(rows), schema=LABELS)


def test_coverage_share_and_length_of_each_source() -> None:
    found = by_source([table(*ROWS)])
    assert [(row["part"], row["source"]) for row in found] == [
        ("question", ANY),
        ("question", "fields"),
        ("question", "rules"),
        ("answer", ANY),
        ("answer", "rules"),
    ]
    every, fields, rules, answers, _ = found
    assert (every["texts"], every["found"], every["share"]) == (4, 3, 0.75)
    assert every["spans_per_text"] == 6 / 3
    assert every["characters_per_span"] == 36 / 6
    assert every["tokens_per_span"] == 12 / 6
    assert (fields["found"], fields["share"], fields["characters_per_span"], fields["tokens_per_span"]) == (
        2,
        0.5,
        8,
        2,
    )
    assert (rules["found"], rules["share"], rules["spans_per_text"], rules["characters_per_span"]) == (1, 0.25, 3, 4)
    # Of the answers that are not empty.
    assert (answers["texts"], answers["found"], answers["share"]) == (3, 2, pytest.approx(2 / 3))
    assert (answers["characters_per_span"], answers["tokens_per_span"]) == (4, 2)
    assert pa.Table.from_pylist(found, schema=EXTRACTION).num_rows == 5


def test_shards_count_together_and_models_apart() -> None:
    other = answer_row("rules", (2,), 1, "Oslo", 4, model="large")
    found = by_source([table(*ROWS[:2]), table(*ROWS[2:]), table(other)])
    assert found[:5] == by_source([table(*ROWS)])
    assert {row["model"] for row in found[5:]} == {"large"}


def test_the_shares_of_the_sources_add_up_to_the_coverage() -> None:
    found = [row for row in by_source([table(*ROWS)]) if row["part"] == "question"]
    assert sum(row["share"] for row in found if row["source"] != ANY) == found[0]["share"]


def test_where_nothing_is_found_there_is_no_length() -> None:
    question, answer = by_source([table(answer_row(None, (), 0, "", 0))])
    assert (question["found"], question["share"], question["characters_per_span"]) == (0, 0, None)
    assert (answer["texts"], answer["share"]) == (0, None)


def asked(question: str, subject: str | None, property_name: str | None, dataset: str = "popqa") -> dict[str, Any]:
    return {
        "dataset": dataset,
        "question_id": question,
        "question": question,
        "subject": subject,
        "property": property_name,
    }


def test_rules_are_compared_with_fields_character_by_character() -> None:
    question = "What is the capital of the Isle of Man?"
    (row,) = against_fields([asked(question, "Isle of Man", "capital")])
    by_fields, by_rules = ([question[s["start"] : s["end"]] for s in row[name]] for name in ("by_fields", "by_rules"))
    assert by_fields == ["capital", "Isle of Man"]
    # An independent count: every character of the question by itself.
    inside = [
        tuple(any(s["start"] <= index < s["end"] for s in row[name]) for name in ("by_fields", "by_rules"))
        for index in range(len(question))
    ]
    assert row["fields_characters"] == len("capitalIsle of Man") == sum(one for one, _ in inside)
    assert row["rules_characters"] == len("".join(by_rules)) == sum(other for _, other in inside)
    assert row["shared_characters"] == sum(one and other for one, other in inside)


def test_questions_without_fields_are_not_compared() -> None:
    rows = [asked("Who rules Rome?", None, None), asked("Who rules Rome?", "Paris", "ruler")]
    assert against_fields(rows) == []
    assert agreements([]) == {}


def compared(shared: int, fields: int, rules: int, dataset: str = "popqa", question: str = "q") -> dict[str, Any]:
    characters = {"shared_characters": shared, "fields_characters": fields, "rules_characters": rules}
    f1 = 2 * shared / (fields + rules)
    found = {"by_fields": spans(fields), "by_rules": spans(rules) if rules else []}
    return {"dataset": dataset, "question_id": question, "question": question, **found, **characters, "f1": f1}


def test_precision_recall_and_f1_are_of_all_characters_together() -> None:
    found = agreements([compared(6, 8, 10), compared(3, 4, 5), compared(5, 5, 5, "other")])
    assert found["popqa"] == (2, pytest.approx(9 / 15), pytest.approx(9 / 12), pytest.approx(18 / 27))
    precision, recall = found["popqa"].precision, found["popqa"].recall
    assert found["popqa"].f1 == pytest.approx(2 * precision * recall / (precision + recall))
    assert found["other"] == (1, 1, 1, 1)
    assert agreements([compared(0, 4, 0)])["popqa"] == (1, None, 0, 0)


def test_the_worst_questions_come_first_and_those_without_difference_not_at_all() -> None:
    rows = [compared(number, 50, 50, question=f"q{number:02}") for number in range(50, 10, -1)]
    found = worst([*rows, compared(0, 9, 9, "other")], "popqa")
    assert [row["question"] for row in found] == [f"q{number:02}" for number in range(11, 11 + WORST)]
    assert worst([compared(5, 5, 5)], "popqa") == []


def test_the_report_shows_the_failures() -> None:
    rows = against_fields([asked("Who was the director of The Take?", "The Take", "director"), asked("a b", "b", "c")])
    text = report(by_source([table(*ROWS)]), rows, {"dataset": {"popqa": "PopQA"}})
    assert "| PopQA    |         2 |" in text
    assert "75.0%" in text
    for row in worst(rows, "popqa"):
        assert row["question"] in text
    assert "No data set of this run names" in report([], [], {})


def test_rules_find_the_subject_and_property_of_popqa(shared_data: Path) -> None:
    source = {"format": "popqa", "path": str(shared_data / "popqa.tsv")}
    stage = QuestionsStage.model_validate({"dataset": "popqa", "entry": source, "questions": {}, "examples": []})
    questions, _ = question_table(stage)
    rows = against_fields(questions)
    found = agreements(rows)["popqa"]
    assert found.questions == len(questions)
    assert found.f1 is not None
    assert found.f1 >= 0.75
    assert pa.Table.from_pylist(rows, schema=EXTRACTION_FIELDS).num_rows == len(questions)
    # The rules saw neither subject nor property.
    for row in rows[::25]:
        alone = exact_question(row["question"], None, None, "rules")
        assert alone is not None
        assert [(span.start, span.end) for span in alone.spans] == [(s["start"], s["end"]) for s in row["by_rules"]]
