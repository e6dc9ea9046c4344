"""Peak memory of an inference job against its number of samples.

The job is the pipeline's own script on made-up questions with a tiny random model, whose weights and activations
weigh little, so that whatever is kept for each sample shows. What counts is anonymous memory (``RssAnon``): memory that
is mapped from files is the system's to take back.
"""

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa

from benchmarks.material import ROOT
from benchmarks.rows import Row
from benchmarks.sizes import Size
from deltap.settings import InferenceSettings, InferenceStage, ModelSettings, PromptSettings
from deltap.tables import QUESTIONS, write_table

GROUP = "Memory of an inference job"
LIMIT = 5.0


def rows(size: Size, scratch: Path) -> Iterator[Row]:
    """Yield the row about memory; Linux only, since it looks into /proc."""
    what = "peak memory, {:,} samples against {:,} (tiny random model, chunks of 128)"
    few, many = size.memory
    target = f"within {LIMIT:g}%"
    if sys.platform != "linux":
        yield Row(GROUP, what.format(many, few), (), "%", target, skipped="needs /proc, which only Linux has")
        return
    model = tiny_model(scratch / "model", "qwen3")
    peaks: dict[int, list[float]] = {few: [], many: []}
    for turn in range(size.memory_runs):
        for number in peaks:
            peaks[number].append(peak(model, number, scratch / f"memory-{number}-{turn}"))
    yield Row(
        GROUP,
        what.format(many, few),
        [100 * (more / less - 1) for more, less in zip(peaks[many], peaks[few], strict=True)],
        "%",
        target,
        lambda value: value <= LIMIT,
        " and ".join(f"{number:,}: {max(found) / 1e6:,.0f} MB" for number, found in peaks.items()) + ".",
    )


def tiny_model(directory: Path, family: str, **changes: int) -> Path:
    """Write a random model of a family, as the tests use them, with its tokenizer, and return its directory.

    Of the family qwen3 it answers every prompt in a few words.
    """
    sys.path.insert(0, str(ROOT / "tests"))
    import torch

    threads = torch.get_num_threads()
    import tiny

    torch.set_num_threads(threads)  # which the tests set to one
    tokenizer, model = tiny.tokenizer(), tiny.model(family, max_position_embeddings=1024, **changes)
    texts = [tokenizer.decode([token]) for token in range(model.config.vocab_size)]
    others = [token for token, text in enumerate(texts) if not (text[:1] == " " and text[1:].isalpha())]
    model.lm_head.weight.data[others] = 0  # below some word, whose logits are of either sign
    model.generation_config.eos_token_id = texts.index(" man")  # which this model says early
    model.save_pretrained(directory)
    tokenizer.save_pretrained(directory)
    return directory


def peak(model: Path, samples: int, folder: Path) -> float:
    """Return the peak anonymous memory, in bytes, of an inference job of so many samples."""
    questions(folder / "questions.parquet", samples)
    stage = InferenceStage(
        model="m",
        dataset="d",
        extractor="auto",
        entry=ModelSettings(kind="base", dtype="float32", device="cpu", max_new_tokens=8),
        prompt=PromptSettings(),
        inference=InferenceSettings(),
        bad_rows=0.01,
    )
    command = [sys.executable, str(ROOT / "scripts" / "inference.py"), "--settings", stage.model_dump_json()]
    command += ["--questions", str(folder / "questions.parquet"), "--model", str(model)]
    command += ["--store", str(folder / "store"), "--out", str(folder / "out")]
    path = os.pathsep.join(filter(None, [str(ROOT / "workflow"), os.environ.get("PYTHONPATH")]))
    with (folder / "job.log").open("w") as log:
        job = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, env={**os.environ, "PYTHONPATH": path})
        highest = 0
        while job.poll() is None:
            highest = max(highest, _anonymous(job.pid))
            time.sleep(0.01)
    if job.returncode:
        raise RuntimeError(f"the inference job failed:\n{(folder / 'job.log').read_text()}")
    return highest


def questions(path: Path, number: int) -> None:
    """Write a table of so many made-up questions."""
    rows = [
        {
            "question_id": f"q{index}",
            "dataset": "d",
            "question": f"What is the capital of the country called Land {index:05d}?",
            "gold_answers": ["x"],
            "subject": f"Land {index:05d}",
            "property": "capital",
            "split": ("train", "test")[index % 2],
            "hash": f"{index:016x}",
            "extra": "{}",
        }
        for index in range(number)
    ]
    path.parent.mkdir(parents=True, exist_ok=True)
    write_table(path, pa.Table.from_pylist(rows, QUESTIONS), QUESTIONS, {})


def _anonymous(process: int) -> int:
    """Return a process's anonymous memory in bytes; 0 where it has ended."""
    try:
        status = Path(f"/proc/{process}/status").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return 0
    return next((1024 * int(line.split()[1]) for line in status.splitlines() if line.startswith("RssAnon:")), 0)
