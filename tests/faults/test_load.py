"""Memory, open files and time of what runs on CPUs, at 20,000 questions and 2,000 shards (make soak)."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pytest
import running
import torch

from deltap.tables import ANSWERS, DELTA_P, write_batches, write_table
from deltap.tensors import write_activations

pytestmark = pytest.mark.skipif(not os.environ.get("DELTAP_SOAK"), reason="takes minutes: make soak")
FEW, MANY = 5_000, 20_000
# Megabytes for 15,000 more questions: their rows as Python objects, 6 kB each; the bootstrap's 2,000 draws of a group.
GROWTH = {"summarise": 200}
ROWS = 90
# Runs a script as its main program, and says at its end how much memory it had and how many files are still open.
_WATCHED = """
import os, re, runpy, sys, time
script, sys.argv = sys.argv[1], sys.argv[1:]
sys.path.insert(0, os.path.dirname(script))
start = time.process_time()
try:
    runpy.run_path(script, run_name="__main__")
except SystemExit as error:
    assert not error.code, error.code
# Not getrusage: its peak is that of the process that started this one, too.
status = open("/proc/self/status").read()
print("MEASURED", int(re.search(r"VmHWM:\\s+(\\d+)", status)[1]) / 1e3, len(os.listdir("/proc/self/fd")),
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


def write_sources(folder: Path, number: int) -> None:
    """Write questions, and what inference would leave of them: answers and activations of 2 layers and 32 features."""
    asked = [{"question_id": f"q{i}", "question": question(i), "answers": [f"City {i % 2}"]} for i in range(number)]
    (folder / "source.jsonl").write_text("\n".join(map(json.dumps, asked)))
    text = {"start": 0, "end": 6, "text": "City 0"}
    splits = ["train", "test", "validation", "test"] * (number // 4)
    test = np.cumsum([split == "test" for split in splits]) - 1
    rows = [
        {"model": "m", "dataset": "d", "extractor": "auto", "question_id": f"q{index}", "split": split,
         "question": question(index), "gold_answers": [f"City {index % 2}"], "answer": f"City {index // 4 % 2}",
         "answer_given": False, "answer_ids": [1, 2, 3], "prompt_tokens": 100, "exact_question": [text],
         "exact_question_source": "rules", "exact_question_tokens": [5], "exact_question_token_text": ["x"],
         "repeated_in_thought": 0, "exact_answer": {**text, "text": f"City {index // 4 % 2}"},
         "exact_answer_source": "rules", "exact_answer_tokens": [101], "exact_answer_token_text": ["City"],
         "exclusion": None, "clean_row": index, "knockout_row": int(test[index]) if split == "test" else None}
        for index, split in enumerate(splits)
    ]  # fmt: skip
    batches = (pa.Table.from_pylist(rows[i : i + 500], ANSWERS) for i in range(0, number, 500))
    write_batches(folder / "answers.parquet", batches, ANSWERS, {})
    torch.manual_seed(0)
    clean = torch.randn(2, number, 32)
    clean[:, :, 0] += torch.tensor([1.0 if index // 4 % 2 == index % 2 else -1.0 for index in range(number)])
    write_activations(folder / "clean.attn.last.safetensors", [clean], {})
    chosen = torch.tensor([split == "test" for split in splits])
    write_activations(folder / "knockout.attn.last.safetensors", [clean[:, chosen].flip(1)], {})


def stages(folder: Path) -> dict[str, tuple[object, ...]]:
    """Return the arguments of each script that runs on CPUs, in the order of the flow."""
    source = {"dataset": "d", "entry": {"path": str(folder / "source.jsonl")}, "examples": [],
              "questions": {"number": None}}  # fmt: skip
    table = {name: folder / f"{name}.parquet" for name in
             ("questions", "answers", "labels", "samples", "extraction", "fields", "scores", "anchors", "rows",
              "delta_p", "summary")}  # fmt: skip
    clean, knockout, probes = (folder / f"{name}.attn.last.safetensors" for name in ("clean", "knockout", "probes"))
    probe = {"probe": {"regularisation": [0.01]}, "sites": ["attn"], "positions": ["last"]}
    rows = {"anchor": "q_anchored", "groupings": ["per_layer"], "reference_class": "predicted"}
    judged = ("--answers", table["labels"], "--questions", table["questions"])
    return {
        "questions": ("--settings", json.dumps(source), "--out", table["questions"]),
        "labels": ("--settings", json.dumps({"labels": {}, "bad_rows": 0}), "--answers", table["answers"],
                   "--out", table["labels"]),
        "samples": (*judged, "--out", table["samples"], "--report", folder / "samples.md"),
        "extraction": (*judged, "--out", table["extraction"], "--fields", table["fields"],
                       "--report", folder / "extraction.md"),
        "probes": ("--settings", json.dumps(probe), "--labels", table["labels"], "--clean", clean, "--out", probes,
                   "--scores", table["scores"]),
        "anchors": ("--labels", table["labels"], "--probes", probes, "--scores", table["scores"], "--clean", clean,
                    "--knockout", knockout, "--out", table["anchors"]),
        "delta_p": ("--settings", json.dumps(rows), "--anchors", table["anchors"], "--out", table["rows"]),
        "merge": ("--table", "delta_p", "--parts", table["rows"], "--out", table["delta_p"]),
        "summarise": ("--table", table["delta_p"], "--out", table["summary"]),
    }  # fmt: skip


def test_four_times_the_questions_take_four_times_the_time_and_little_more_memory(tmp_path):
    found: dict[int, dict[str, Measured]] = {}
    for number in (FEW, MANY):
        folder = tmp_path / str(number)
        folder.mkdir()
        write_sources(folder, number)
        found[number] = {script: measured(script, *arguments) for script, arguments in stages(folder).items()}
    for script, many in found[MANY].items():
        few = found[FEW][script]
        print(f"{script}: {few.megabytes:.0f} -> {many.megabytes:.0f} MB, {few.seconds:.1f} -> {many.seconds:.1f} s, "
              f"{few.files:.0f} -> {many.files:.0f} files")  # fmt: skip
        assert many.files <= few.files + 2, script
        assert many.seconds < 6 * few.seconds, script
        assert many.megabytes < few.megabytes + GROWTH.get(script, ROWS), script


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
    print(*found, sep="\n")
    assert found[1].files <= found[0].files + 2
    assert found[1].seconds < 6 * found[0].seconds
    assert found[1].megabytes < found[0].megabytes + 75  # what Parquet's footer says of 1,500 more row groups
