"""Memory, open files and time of what runs on CPUs, at 20,000 questions and 2,000 shards (make soak)."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pytest
import running

from deltap.tables import ANSWERS, DELTA_P, write_batches, write_table

pytestmark = pytest.mark.skipif(not os.environ.get("DELTAP_SOAK"), reason="takes minutes: make soak")
FEW, MANY = 5_000, 20_000
# Runs a script as its main program, and says at its end how much memory it had and how many files are still open.
_WATCHED = """
import os, resource, runpy, sys, time
script, sys.argv = sys.argv[1], sys.argv[1:]
sys.path.insert(0, os.path.dirname(script))
start = time.process_time()
try:
    runpy.run_path(script, run_name="__main__")
except SystemExit as error:
    assert not error.code, error.code
print("MEASURED", resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3, len(os.listdir("/proc/self/fd")),
      time.process_time() - start)
"""


class Measured(NamedTuple):
    """What a script took."""

    megabytes: float
    files: int
    seconds: float


def measured(script: str, *arguments: object) -> Measured:
    path = running.ROOT / "scripts" / f"{script}.py"
    done = subprocess.run(
        [sys.executable, "-c", _WATCHED, str(path), *map(str, arguments)], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return Measured(*map(float, done.stdout.split("MEASURED")[-1].split()))


def question(number: int) -> str:
    return f"What is the capital of the country number {number} of the long list that nobody has read?"


def questions(folder: Path, number: int) -> Measured:
    source = folder / f"{number}.jsonl"
    rows = ({"question": question(index), "answer": [f"City {index}"]} for index in range(number))
    source.write_text("\n".join(map(json.dumps, rows)))
    settings = {"dataset": "d", "entry": {"format": "nq", "path": str(source)}, "examples": [],
                "questions": {"number": None}}  # fmt: skip
    return measured("questions", "--settings", json.dumps(settings), "--out", folder / f"{number}.parquet")


def labels(folder: Path, number: int) -> Measured:
    text = {"start": 0, "end": 4, "text": "City"}
    rows = [
        {"model": "m", "dataset": "d", "extractor": "auto", "question_id": f"q{index}", "split": "train",
         "question": question(index), "gold_answers": [f"City {index}"], "answer": f"City {index % 7}",
         "answer_given": False, "answer_ids": [1, 2, 3], "prompt_tokens": 100, "exact_question": [text],
         "exact_question_source": "rules", "exact_question_tokens": [5], "exact_question_token_text": ["x"],
         "repeated_in_thought": 0, "exact_answer": text, "exact_answer_source": "rules", "exact_answer_tokens": [101],
         "exact_answer_token_text": ["City"], "exclusion": None, "clean_row": index, "knockout_row": None}
        for index in range(number)
    ]  # fmt: skip
    answers = folder / f"answers{number}.parquet"
    write_batches(
        answers, (pa.Table.from_pylist(rows[i : i + 500], ANSWERS) for i in range(0, number, 500)), ANSWERS, {}
    )
    settings = json.dumps({"labels": {}, "bad_rows": 0})
    return measured("labels", "--settings", settings, "--answers", answers, "--out", folder / f"labels{number}.parquet")


@pytest.mark.parametrize("stage", [questions, labels])
def test_four_times_the_questions_take_four_times_the_time_and_few_more_files(stage, tmp_path):
    few, many = stage(tmp_path, FEW), stage(tmp_path, MANY)
    assert many.files <= few.files + 2
    assert many.seconds < 6 * few.seconds
    assert many.megabytes < few.megabytes + 250  # rows as Python objects: some 10 kB for each question at most


def test_two_thousand_parts_are_merged_with_few_open_files_and_flat_memory(tmp_path):
    values = {field.name: pa.nulls(200, field.type) for field in DELTA_P}
    values |= {"model": ["m"] * 200, "dataset": ["d"] * 200, "extractor": ["auto"] * 200, "delta_p": [1.0] * 200}
    rows = pa.table(values).cast(DELTA_P)
    parts = [tmp_path / f"{index}.parquet" for index in range(2000)]
    for part in parts:
        write_table(part, rows, DELTA_P, {"provenance": {}})
    found = [
        measured("merge", "--table", "delta_p", "--parts", *parts[:number], "--out", tmp_path / f"all{number}.parquet")
        for number in (500, 2000)
    ]
    assert found[1].files <= found[0].files + 2
    assert found[1].seconds < 6 * found[0].seconds
    assert found[1].megabytes < 1.25 * found[0].megabytes
