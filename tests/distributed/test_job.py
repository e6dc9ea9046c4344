"""The jobs that load the model, by several ranks: the files of one process, and chunks that outlive a killed rank."""

import os
import signal
import time
from pathlib import Path

import pyarrow as pa
import pytest
import starting
import torch
from test_engines import engines, entry

import tiny
from deltap.settings import (
    HeadSettings,
    InferenceSettings,
    InferenceStage,
    InterventionSettings,
    InterventionsStage,
    PromptSettings,
    WindowSettings,
)
from deltap.tables import ANSWERS, INTERVENTIONS, PROBES, QUESTIONS, read_metadata, read_table, write_table
from deltap.tensors import ActivationFiles

SCRIPT, INTERVENTIONS_SCRIPT = (starting.ROOT / "scripts" / name for name in ("inference.py", "interventions.py"))
pytestmark = pytest.mark.xdist_group("distributed")
NAMES = [
    f"{first}{last}" for first in ("Ar", "Bel", "Cor", "Dun", "El", "Fa") for last in ("ania", "bury", "cia", "dor")
]


@pytest.fixture(scope="module")
def inputs(tmp_path_factory):
    """A model and a table of questions."""
    folder = tmp_path_factory.mktemp("inputs")
    rows = [
        {
            "question_id": f"q{index}",
            "dataset": "d",
            "question": f"What is the capital of {name}?",
            "gold_answers": ["x"],
            "subject": name,
            "property": "capital",
            "split": ("train", "test")[index % 2],
            "hash": f"{index:016x}",
            "extra": "{}",
        }
        for index, name in enumerate(NAMES)
    ]
    write_table(folder / "questions.parquet", pa.Table.from_pylist(rows, QUESTIONS), QUESTIONS, {})
    return tiny.save(folder / "model", "llama"), folder / "questions.parquet"


def start(inputs, folder, out="out", **changes):
    settings = entry(max_new_tokens=8, **changes)
    stage = InferenceStage(
        model="m",
        dataset="d",
        extractor="auto",
        entry=settings,
        prompt=PromptSettings(),
        inference=InferenceSettings(sites=("attn", "mlp"), positions=("last", "exact_answer_last"), chunk_questions=4),
        bad_rows=0.01,
    )
    model, questions = inputs
    arguments = ("--settings", stage.model_dump_json(exclude_none=True), "--questions", questions, "--model", model)
    places = ("--store", folder / "store", "--out", folder / out, "--log", folder / "job.log")
    options = ("--engine", settings.engine, "--device", "cpu", "--log", str(folder / "job.log"))
    return starting.start(SCRIPT, *arguments, *places, ranks=settings.ranks, options=options)


@pytest.fixture(scope="module")
def alone(inputs, tmp_path_factory):
    folder = tmp_path_factory.mktemp("alone")
    starting.finish(start(inputs, folder), seconds=500)
    return folder


@engines
def test_the_job_gives_the_files_of_one_process(inputs, alone, tmp_path, engine):
    starting.finish(start(inputs, tmp_path, engine=engine, ranks=2), seconds=500)
    ours, theirs = (read_table(folder / "out" / "answers.parquet", ANSWERS) for folder in (tmp_path, alone))
    assert ours.to_pylist() == theirs.to_pylist()
    assert sum(row["exclusion"] is None for row in ours.to_pylist()) > len(NAMES) / 2
    names = sorted(path.name for path in (alone / "out").glob("*.safetensors"))
    assert sorted(path.name for path in (tmp_path / "out").glob("*.safetensors")) == names
    for name in names:
        one, other = ActivationFiles([tmp_path / "out" / name]), ActivationFiles([alone / "out" / name])
        assert one.rows > 0
        for layer in range(4):
            torch.testing.assert_close(one.layer(layer), other.layer(layer), atol=1e-5, rtol=0)
    made_by = read_metadata(tmp_path / "out" / "answers.parquet")["provenance"]
    facts = {key: made_by[key] for key in ("engine", "ranks", "device", "threads")}
    assert facts == {"engine": engine, "ranks": 2, "device": "cpu", "threads": 1}
    # One writer: a log without doubled lines, and chunks that no other engine takes for its own.
    lines = [line for line in (tmp_path / "job.log").read_text().splitlines() if "answers," in line]
    assert len(lines) == 1
    chunks = [{path.name for path in (folder / "store").rglob("*.safetensors")} for folder in (tmp_path, alone)]
    assert not chunks[0] & chunks[1]


def test_a_killed_rank_stops_the_job_and_its_chunks_are_taken_up(inputs, tmp_path):
    job = start(inputs, tmp_path, engine="accelerate", ranks=2)
    until = time.monotonic() + 300
    while len(first := list((tmp_path / "store").rglob("[!.]*.safetensors"))) < 3:  # answers and activations
        assert time.monotonic() < until
        time.sleep(0.02)
    victim = max(children(job.pid))
    os.kill(victim, signal.SIGKILL)
    killed = time.monotonic()
    output, _ = job.communicate(timeout=100)
    assert time.monotonic() - killed < 60
    assert job.returncode == 1
    assert "error: rank 1 of 2: killed by SIGKILL" in output
    assert not (tmp_path / "out" / "answers.parquet").exists()
    before = {path: path.stat().st_mtime_ns for path in first}

    starting.finish(start(inputs, tmp_path, engine="accelerate", ranks=2), seconds=500)
    assert {path: path.stat().st_mtime_ns for path in first} == before
    assert "already" in (tmp_path / "job.log").read_text()
    starting.finish(start(inputs, tmp_path / "again", engine="accelerate", ranks=2), seconds=500)
    for path in (tmp_path / "again" / "out").iterdir():
        assert path.read_bytes() == (tmp_path / "out" / path.name).read_bytes(), path.name


def intervene(inputs, answers, folder, **changes):
    """Start the job of the other cuts, of samples that one process answered."""
    settings = entry(max_new_tokens=8, **changes)
    stage = InterventionsStage(
        **{"model": "m", "dataset": "d", "extractor": "auto", "entry": settings, "prompt": PromptSettings()},
        interventions=InterventionSettings(
            random_tokens=1,
            random_mass=1,
            dose=(1,),
            windows=WindowSettings(widths=(2,)),
            heads=HeadSettings(layers=(1,)),
        ),
        site="attn",
        position="exact_answer_last",
        chunk_questions=4,
        seed=0,
    )
    scores = [
        {"model": "m", "dataset": "d", "site": "attn", "position": "exact_answer_last", "split": "validation",
         "layer": layer, "auroc": 0.9 - abs(layer - 2) / 10}
        for layer in range(4)
    ]  # fmt: skip
    folder.mkdir(exist_ok=True)
    write_table(folder / "scores.parquet", scores, PROBES, {})
    arguments = ("--settings", stage.model_dump_json(exclude_none=True), "--answers", answers, "--model", inputs[0])
    places = ("--scores", folder / "scores.parquet", "--store", folder / "store", "--out", folder / "out")
    options = ("--engine", settings.engine, "--device", "cpu", "--log", str(folder / "job.log"))
    log = ("--log", folder / "job.log")
    return starting.start(INTERVENTIONS_SCRIPT, *arguments, *places, *log, ranks=settings.ranks, options=options)


@pytest.fixture(scope="module")
def cut_alone(inputs, alone, tmp_path_factory):
    """The other cuts by one process."""
    folder = tmp_path_factory.mktemp("cut")
    starting.finish(intervene(inputs, alone / "out" / "answers.parquet", folder), seconds=500)
    return folder


@engines
def test_the_other_cuts_are_those_of_one_process(inputs, alone, cut_alone, tmp_path, engine):
    answers = alone / "out" / "answers.parquet"
    starting.finish(intervene(inputs, answers, tmp_path, engine=engine, ranks=2), seconds=500)
    ours, theirs = (
        read_table(folder / "out" / "interventions.parquet", INTERVENTIONS).to_pylist()
        for folder in (tmp_path, cut_alone)
    )
    masses = [(row.pop("mass"), row.pop("exact_mass")) for row in ours]
    expected = [(row.pop("mass"), row.pop("exact_mass")) for row in theirs]
    assert ours == theirs  # the same tokens are cut
    for found, wanted in zip(masses, expected, strict=True):
        assert found == (None, None) if None in wanted else found == pytest.approx(wanted, abs=1e-5)
    names = sorted(path.name for path in (cut_alone / "out").glob("*.safetensors"))
    assert len(names) == 6
    for name in names:
        one, other = (ActivationFiles([folder / "out" / name]) for folder in (tmp_path, cut_alone))
        assert one.rows > 0
        for place in range(one.layers):
            torch.testing.assert_close(one.layer(place), other.layer(place), atol=1e-5, rtol=0)


def children(pid: int) -> list[int]:
    """Process ids of a process's children, oldest first."""
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
