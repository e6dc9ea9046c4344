"""The samples of a run and their overview, against numbers worked out by hand."""

import importlib.util
from argparse import Namespace
from pathlib import Path

import pyarrow as pa
import pytest

from deltap.errors import DeltapError
from deltap.overview import Facts, Overview, overviews, question_facts, report, sample_table
from deltap.tables import LABELS, QUESTIONS, SAMPLES, read_metadata, read_table, write_table

ROOT = Path(__file__).parents[2]

# answer, its exact answer, gold answers, label, exclusion, popularity
ANSWERS: list[tuple[str, str | None, list[str], str, str | None, float | None]] = [
    ("Rome", "Rome", ["Rome"], "truthful", None, 1),
    ("It is Rome", "Rome", ["Rome"], "truthful", None, 2),
    ("Oslo, not Rome", "Oslo", ["Rome"], "hallucinated", None, 3),
    ("Oslo", "Oslo", ["Rome"], "hallucinated", None, 4),
    ("Oslo and so", "Oslo", ["Rome"], "hallucinated", "truncated_answer", 5),
    ("I don't know", "I don't know", ["Rome"], "abstained", None, 6),
    ("", None, ["Rome"], "abstained", "empty_answer", 7),
    ("Rome", "Rome", ["Rome"], "truthful", "no_exact_question", 8),
    ("Bern", "Bern", ["Rome"], "hallucinated", None, None),
]


def answers(model: str = "tiny", dataset: str = "capitals") -> pa.Table:
    rows = []
    for number, (answer, exact, gold, label, exclusion, _) in enumerate(ANSWERS):
        start = answer.find(exact) if exact else 0
        rows.append(
            {
                "model": model,
                "dataset": dataset,
                "extractor": "auto",
                "question_id": str(number),
                "split": "train" if number % 2 else "test",
                "question": "What is the capital of Italy?",
                "gold_answers": gold,
                "answer": answer,
                "answer_ids": list(range(len(answer.split()))),
                "prompt_tokens": 9,
                "exact_question": [],
                "exact_question_source": None if exclusion == "no_exact_question" else "rules",
                "exact_question_tokens": [] if exclusion == "no_exact_question" else [4, 6],
                "exact_answer": {"start": start, "end": start + len(exact), "text": exact} if exact else None,
                "exact_answer_source": "rules" if exact else None,
                "exact_answer_tokens": [9] if exact else [],
                "exclusion": exclusion,
                "label": label,
                "echo": False,
            }
        )
    return pa.Table.from_pylist(rows, schema=LABELS)


def facts(dataset: str = "capitals") -> dict[tuple[str, str], Facts]:
    return {(dataset, str(number)): Facts(row[-1], "bridge") for number, row in enumerate(ANSWERS)}


def overview(popularity: bool = True) -> Overview:
    known = facts() if popularity else {key: Facts(None, None) for key in facts()}
    (found,) = overviews(sample_table(answers(), known))
    return found


def test_there_is_a_sample_for_every_question_with_what_is_known_about_it() -> None:
    rows = sample_table(answers(), facts()).to_pylist()
    assert len(rows) == len(ANSWERS)
    assert rows[1] == {
        "model": "tiny",
        "dataset": "capitals",
        "extractor": "auto",
        "question_id": "1",
        "split": "train",
        "label": "truthful",
        "exclusion": None,
        "used_for_probes": True,
        "popularity": 2.0,
        "question_type": "bridge",
        "answer_characters": 10,
        "answer_tokens": 3,
        "exact_question_tokens": 2,
        "exact_answer_tokens": 1,
        "exact_question_source": "rules",
        "exact_answer_source": "rules",
        "echo": False,
        "label_by_exact_answer": "truthful",
        "label_by_containment": "truthful",
        "label_by_exact": "hallucinated",
        "label_by_llm": None,
        "label_by_given": None,
    }


def test_abstained_is_an_exclusion_and_an_earlier_reason_stays() -> None:
    rows = sample_table(answers(), facts()).to_pylist()
    assert [row["exclusion"] for row in rows[4:8]] == [
        "truncated_answer",
        "abstained",
        "empty_answer",
        "no_exact_question",
    ]
    assert all(row["used_for_probes"] == (row["exclusion"] is None) for row in rows)
    assert all(row["exclusion"] for row in rows if row["label"] == "abstained")


def test_a_question_without_its_row_in_the_table_of_questions_is_refused_by_id() -> None:
    with pytest.raises(DeltapError, match=r"data set capitals: question '0' .* run snakemake again"):
        sample_table(answers(), facts("other"))


def test_counts_and_means() -> None:
    found = overview()
    assert found.questions == 9
    assert found.labels == {"truthful": 3, "hallucinated": 4, "abstained": 2}
    assert found.accuracy == pytest.approx(3 / 7)
    assert found.used_for_probes == 5
    assert found.exclusions == {"abstained": 1, "empty_answer": 1, "no_exact_question": 1, "truncated_answer": 1}
    assert found.used_for_probes + sum(found.exclusions.values()) == found.questions
    # Without the empty answer: 4 + 10 + 14 + 4 + 11 + 12 + 4 + 4 characters, 1 + 3 + 3 + 1 + 3 + 3 + 1 + 1 words.
    assert found.answer_characters == pytest.approx(63 / 8)
    assert found.answer_tokens == pytest.approx(16 / 8)


def test_accuracy_by_popularity() -> None:
    low, middle, high = overview().terciles
    # Of 1 … 8 the thirds end at 1 + 7/3 and 1 + 14/3.
    assert low == ("low", 1, 3, 3, pytest.approx(2 / 3))
    assert middle == ("middle", 4, 5, 2, 0)
    assert high == ("high", 6, 8, 3, 1)  # one truthful, two abstained
    assert overview(popularity=False).terciles == []


def test_questions_of_one_popularity_are_not_parted() -> None:
    (third,) = overviews(sample_table(answers(), {key: Facts(5.0, None) for key in facts()}))[0].terciles
    assert (third.lowest, third.highest, third.questions) == (5, 5, 9)


def test_agreement_of_the_ways_of_matching() -> None:
    # Seven answers are not abstained. "It is Rome" is not the whole answer; "Oslo, not Rome" contains Rome.
    assert overview().agreement == {
        ("exact_answer", "containment"): pytest.approx(6 / 7),
        ("exact_answer", "exact"): pytest.approx(6 / 7),
        ("containment", "exact"): pytest.approx(5 / 7),
    }


def test_one_overview_for_each_model_and_data_set_in_the_order_of_the_rows() -> None:
    known = {**facts(), **facts("animals")}
    series = [("b", "capitals"), ("b", "animals"), ("a", "capitals")]
    parts = [sample_table(answers(*names), known) for names in series]
    found = overviews(pa.concat_tables(parts))
    assert [(item.model, item.dataset) for item in found] == series
    assert {item.accuracy for item in found} == {found[0].accuracy}


def test_where_everything_is_abstained_there_is_no_accuracy() -> None:
    table = sample_table(answers().slice(6, 1), facts())
    (found,) = overviews(table)
    assert (found.accuracy, found.answer_characters, found.agreement["exact_answer", "exact"]) == (None, None, None)
    assert "–" in report([found], {})


def cells(text: str, heading: str) -> list[dict[str, str]]:
    """The rows of the first table after a heading."""
    lines = [line for line in text.split(f"{heading}\n")[1].split("\n#")[0].splitlines() if line.startswith("|")]
    split = [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines]
    return [dict(zip(split[0], row, strict=True)) for row in split[2:]]


def test_the_report_shows_the_same_numbers_under_the_names_of_the_figures() -> None:
    text = report([overview()], {"model": {"tiny": "Tiny | 1B"}, "dataset": {"capitals": "Capitals"}})
    (first,) = cells(text, "# Questions and answers")
    assert first == {
        "model": "Tiny \\| 1B",
        "data set": "Capitals",
        "questions": "9",
        "truthful": "3",
        "hallucinated": "4",
        "abstained": "2",
        "accuracy": "42.9%",
        "echoes": "0",
        "characters": "7.9",
        "tokens": "2.0",
    }
    (excluded,) = cells(text, "## Exclusions")
    assert excluded["used for probes"] == "5"
    assert excluded["truncated_answer"] == excluded["empty_answer"] == "1"
    assert [row["accuracy"] for row in cells(text, "## Accuracy by popularity")] == ["66.7%", "0.0%", "100.0%"]
    assert "popularity" not in report([overview(popularity=False)], {})
    assert "extractor" not in text


def test_the_script_writes_the_table_and_the_overview(tmp_path: Path) -> None:
    columns = {"dataset": "capitals", "question": "q", "gold_answers": ["Rome"], "split": "test", "extra": "{}"}
    questions = [
        {
            **columns,
            "question_id": str(number),
            "popularity": row[-1],
            "question_type": "bridge",
            "hash": f"{number:016}",
        }
        for number, row in enumerate(ANSWERS)
    ]
    write_table(tmp_path / "questions.parquet", questions, QUESTIONS, {})
    labels = {"model": [["tiny", "Tiny"]], "dataset": [["capitals", "Capitals"]]}
    write_table(tmp_path / "answers.parquet", answers(), LABELS, {"labels": labels, "provenance": {"a": 1}})
    assert question_facts([read_table(tmp_path / "questions.parquet", QUESTIONS)]) == facts()

    spec = importlib.util.spec_from_file_location("samples_script", ROOT / "scripts" / "samples.py")
    assert spec
    assert spec.loader
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    out, text = tmp_path / "samples.parquet", tmp_path / "samples.md"
    script.main(
        Namespace(
            answers=tmp_path / "answers.parquet", questions=[tmp_path / "questions.parquet"], out=out, report=text
        )
    )
    assert read_table(out, SAMPLES).to_pylist() == sample_table(answers(), facts()).to_pylist()
    assert read_metadata(out)["provenance"]["inputs"] == {"a": 1}
    assert "| Tiny  | Capitals |" in text.read_text(encoding="utf-8")
