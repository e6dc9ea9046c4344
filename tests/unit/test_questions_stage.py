"""The whole questions stage: its counts, its script, and the real question files."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from deltap.errors import DeltapError
from deltap.questions.build import question_table
from deltap.settings import QuestionsStage
from deltap.tables import QUESTIONS, read_metadata, read_table
from deltap.text import normalise

ROOT = Path(__file__).parents[2]


def stage(
    path: Path | str, kind: str = "nq", yes_no: bool = True, examples: tuple = (), **questions: Any
) -> QuestionsStage:
    return QuestionsStage.model_validate(
        {
            "dataset": kind,
            "entry": {"format": kind, "path": str(path), "yes_no": yes_no},
            "questions": questions,
            "examples": examples,
        }
    )


def write_nq(path: Path, rows: list[tuple[str, Any]]) -> Path:
    path.write_text("".join(json.dumps({"question": q, "answer": a}) + "\n" for q, a in rows), encoding="utf-8")
    return path


MANY = [(f"question {number}", [f"answer {number}"]) for number in range(60)]


def test_everything_that_is_left_out_is_counted_by_its_reason(tmp_path: Path) -> None:
    rows = [
        *MANY,
        ("Question 1?", ["answer 1"]),
        ("QUESTION 2", ["another"]),
        ("is it so", "yes"),
        ("What is the capital of Japan", "Tokyo"),
        ("", "a"),
    ]
    path = write_nq(tmp_path / "q.jsonl", rows)
    examples = ({"question": "what is the CAPITAL of Japan?", "answer": "Tokyo"},)
    table, counts = question_table(stage(path, yes_no=False, examples=examples, number=50, bad_rows=0.1))
    assert counts["rows"] == 65
    assert counts["dropped"] == {
        "bad_row": 1,
        "ids": 0,
        "types": 0,
        "popularity": 0,
        "yes_no": 1,
        "few_shot_example": 1,
        "duplicate": 1,
        "same_question_other_answers": 1,
        "not_sampled": 10,
    }
    assert counts["questions"] == len(table) == counts["rows"] - sum(counts["dropped"].values())
    assert sum(counts["splits"].values()) == 50
    assert set(table[0]) == set(QUESTIONS.names)


def test_yes_and_no_are_kept_where_the_data_set_says_so(tmp_path: Path) -> None:
    path = write_nq(tmp_path / "q.jsonl", [*MANY, ("is it so", "yes")])
    assert question_table(stage(path))[1]["questions"] == 61


def test_a_set_of_which_nothing_is_left_is_an_error_with_the_counts(tmp_path: Path) -> None:
    path = write_nq(tmp_path / "q.jsonl", [("is it", "so"), ("IS IT?", "not")])
    with pytest.raises(DeltapError, match=r"no question is left of 2 rows: .*few_shot_example 2"):
        question_table(stage(path, examples=({"question": "Is it?", "answer": "so"},)))


def test_a_filter_that_leaves_nothing_is_an_error_that_names_it(tmp_path: Path) -> None:
    path = write_nq(tmp_path / "q.jsonl", [("is it", "yes"), ("is it not", "no")])
    with pytest.raises(DeltapError, match=r"no question is left by the filter 'yes_no'; it leaves out all of the 2"):
        question_table(stage(path, yes_no=False))


def test_a_set_with_too_few_questions_is_an_error(tmp_path: Path) -> None:
    path = write_nq(tmp_path / "q.jsonl", MANY[:3])
    with pytest.raises(DeltapError, match="data set nq: too few questions in a split"):
        question_table(stage(path))


def run_script(out: Path, settings: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(ROOT / "scripts" / "questions.py"), "--settings", settings, "--out", str(out)]
    return subprocess.run(command, capture_output=True, text=True, cwd=out.parent)


def test_the_script_writes_the_table_with_provenance_and_counts(tmp_path: Path) -> None:
    for folder in ("here", "there"):
        (tmp_path / folder).mkdir()
        path = write_nq(tmp_path / folder / "q.jsonl", MANY)
        done = run_script(tmp_path / folder / "questions.parquet", stage(path).model_dump_json())
        assert done.returncode == 0, done.stderr
    first, second = (tmp_path / folder / "questions.parquet" for folder in ("here", "there"))
    assert first.read_bytes() == second.read_bytes()
    table, metadata = read_table(first, QUESTIONS), read_metadata(first)
    assert table.num_rows == metadata["counts"]["questions"] == 60
    assert table.column("hash").to_pylist() == sorted(table.column("hash").to_pylist())
    assert metadata["provenance"]["stage"] == "questions"
    assert metadata["provenance"]["settings"]["entry"]["path"] == "q.jsonl"
    assert len(metadata["provenance"]["file_sha256"]) == 64


def test_the_script_says_in_one_message_what_is_wrong(tmp_path: Path) -> None:
    done = run_script(tmp_path / "questions.parquet", stage(tmp_path / "none.jsonl").model_dump_json())
    assert done.returncode == 1
    assert done.stderr.startswith("error: data set nq: no file")
    assert "Traceback" not in done.stderr
    assert not list(tmp_path.glob("*.parquet"))


def test_checking_a_file_imports_nothing_heavy() -> None:
    code = (
        "import sys; from deltap.questions.source import check_file; "
        "sys.exit(', '.join({'pyarrow', 'datasets', 'torch', 'numpy', 'pandas'} & set(sys.modules)) or 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


# Real files: format, file, rows, and what is left out.
REAL = [
    ("popqa", "popqa.tsv", 500, {"duplicate": 2, "same_question_other_answers": 2}),
    ("popqa", "popqa.flashrag.jsonl", 500, {"duplicate": 2, "same_question_other_answers": 2}),
    ("triviaqa", "triviaqa.official.json", 500, {}),
    ("triviaqa", "triviaqa.flashrag.jsonl", 500, {}),
    ("nq", "NQ-open.dev.jsonl", 1000, {"bad_row": 2}),
    ("nq", "nq.flashrag.jsonl", 500, {"bad_row": 1}),
    ("hotpotqa", "hotpotqa.simplified.json", 1000, {}),
]


@pytest.mark.parametrize(("kind", "name", "rows", "dropped"), REAL, ids=[name for _, name, _, _ in REAL])
def test_the_real_files_are_read_whole(shared_data: Path, kind: str, name: str, rows: int, dropped: dict) -> None:
    table, counts = question_table(stage(shared_data / name, kind))
    assert counts["rows"] == rows
    assert {reason: number for reason, number in counts["dropped"].items() if number} == dropped
    assert len(table) == rows - sum(dropped.values())
    for row in table:
        assert row["question"] == " ".join(row["question"].split())
        assert '""' not in row["question"] or kind == "hotpotqa"
        assert all(answer == " ".join(answer.split()) != "" for answer in row["gold_answers"])
        assert (row["subject"] is not None) == (kind == "popqa")
        assert isinstance(json.loads(row["extra"]), dict)
    assert len({row["question_id"] for row in table}) == len(table)


@pytest.mark.parametrize("split_by", ["question", "subject", "answer"])
@pytest.mark.parametrize(
    ("kind", "first", "second", "shared"),
    [
        ("popqa", "popqa.tsv", "popqa.flashrag.jsonl", 496),
        ("triviaqa", "triviaqa.official.json", "triviaqa.flashrag.jsonl", 500),
        ("nq", "NQ-open.dev.jsonl", "nq.flashrag.jsonl", 131),
    ],
)
def test_a_question_has_the_same_split_and_answers_in_both_files(
    shared_data: Path, kind: str, first: str, second: str, shared: int, split_by: str
) -> None:
    columns = ("question", "gold_answers", "subject", "property", "popularity", "split", "hash")

    def by_words(name: str) -> dict[str, list]:
        table, _ = question_table(stage(shared_data / name, kind, split_by=split_by))
        return {normalise(row["question"]): [row[column] for column in columns] for row in table}

    one, other = by_words(first), by_words(second)
    both = one.keys() & other.keys()
    assert len(both) == shared
    for words in both:
        assert one[words] == other[words]


def test_both_files_of_one_data_set_give_the_same_sample(shared_data: Path) -> None:
    names = ("popqa.tsv", "popqa.flashrag.jsonl")
    tables = [question_table(stage(shared_data / name, "popqa", number=100))[0] for name in names]
    assert [row["hash"] for row in tables[0]] == [row["hash"] for row in tables[1]]
    assert [f"test_{row['question_id']}" for row in tables[0]] == [row["question_id"] for row in tables[1]]


def test_the_oddities_of_the_real_files_survive(shared_data: Path) -> None:
    popqa, _ = question_table(stage(shared_data / "popqa.tsv", "popqa"))
    symbols = [row for row in popqa if any(not normalise(answer) for answer in row["gold_answers"])]
    assert len(symbols) == 12
    assert any(answer == "🇿🇦" for row in symbols for answer in row["gold_answers"])
    assert {row["property"] for row in popqa} >= {"composer", "capital of", "screenwriter"}
    assert all(row["popularity"] > 0 for row in popqa)

    hotpotqa, counts = question_table(stage(shared_data / "hotpotqa.simplified.json", "hotpotqa", yes_no=False))
    assert counts["dropped"]["yes_no"] == 59
    assert {row["question_type"] for row in hotpotqa} == {"bridge", "comparison"}
    assert sum('as a sequel to "", which' in row["question"] for row in hotpotqa) == 1

    triviaqa, _ = question_table(stage(shared_data / "triviaqa.flashrag.jsonl", "triviaqa"))
    questions = {row["question"]: row["gold_answers"] for row in triviaqa}
    assert 'Who wrote "A cauliflower is nothing but a cabbage with a college education"?' in questions
    assert any(len(answers) > 20 for answers in questions.values())
    assert any('Winning the TV show "American Idol"' in answers for answers in questions.values())
