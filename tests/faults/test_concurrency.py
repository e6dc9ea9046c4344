"""Two starts at the same time: in one folder the second learns who holds it; what runs share they share safely."""

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import running
from killing import tables

sys.path.insert(0, str(Path(__file__).parents[1] / "unit"))

SNAKEFILE = running.ROOT / "Snakefile"


def start(folder: Path, configfile: Path, *arguments: str) -> subprocess.Popen:
    """Start Snakemake and return at once."""
    command = [sys.executable, "-m", "snakemake", "--snakefile", str(SNAKEFILE), "--directory", str(folder),
               "--configfile", str(configfile), "--cores", "1", *arguments]  # fmt: skip
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


@pytest.fixture
def running_start(configfile, tmp_path):
    """A start that computes something in ``tmp_path``, and its folder."""
    first = start(tmp_path, configfile)
    end = time.monotonic() + 120
    while not any((tmp_path / ".snakemake").glob("deltap-holder.json")):
        assert first.poll() is None, first.stdout.read()
        assert time.monotonic() < end
        time.sleep(0.1)
    yield first, tmp_path
    if first.poll() is None:
        first.send_signal(signal.SIGINT)
        first.wait(60)
    first.stdout.close()


def test_the_second_start_in_a_folder_is_told_who_holds_it(running_start, configfile):
    first, folder = running_start
    second = running.snakemake(folder, configfile, check=False)
    assert second.returncode
    assert "Directory cannot be locked" in second.stdout
    assert f"snakemake, process {first.pid} on" in second.stdout
    assert "works in this folder since" in second.stdout


def test_a_start_after_a_killed_one_is_told_so(running_start, configfile):
    first, folder = running_start
    first.kill()
    first.wait()
    second = running.snakemake(folder, configfile, check=False)
    assert second.returncode
    assert f"process {first.pid} on" in second.stdout
    assert "was killed: once with --unlock, then again" in second.stdout
    running.snakemake(folder, configfile, "--unlock")
    assert "held this folder" not in running.snakemake(folder, configfile, "-n", "--rerun-incomplete").stdout


def test_two_runs_that_share_models_and_chunks_end_with_the_same_tables(configfile, tmp_path):
    """Both convert a GGUF file, and ask what comes of it and another model the same questions."""
    from test_downloads import write_gguf

    write_gguf(configfile.parent / "small.gguf", scale=0.2)  # larger weights attend to one token each
    shared = {"work": str(tmp_path / "work"), "models": str(tmp_path / "models")}
    converted = running.with_definition(
        configfile,
        "model",
        "converted",
        label="Converted",
        source={"path": "small.gguf"},
        kind="base",
        device="cpu",
        dtype="float32",
        gpus=0,
        max_new_tokens=running.MAX_NEW_TOKENS,
    )
    config = running.labelled(converted, models=["tiny-base", "converted"], paths=shared)
    folders = [tmp_path / "one", tmp_path / "other"]
    starts = [start(folder, config) for folder in folders if not folder.mkdir()]
    said = [each.communicate(timeout=500)[0] for each in starts]
    assert [each.returncode for each in starts] == [0, 0], said
    assert tables(folders[0]) == tables(folders[1])
    logs = [log.read_text() for folder in folders for log in folder.glob("results/mine/logs/fetch_model/*.log")]
    assert sum("already in" in log for log in logs) == 1
    assert not list((tmp_path / "work").rglob(".*"))
    assert not list((tmp_path / "work" / "chunks" / "locks").iterdir())


def test_two_runs_that_convert_the_same_model_do_it_once(tmp_path):
    from test_downloads import write_gguf

    write_gguf(tmp_path / "small.gguf")
    command = [
        *(sys.executable, str(running.ROOT / "scripts" / "fetch_model.py")),
        *(
            "--settings",
            json.dumps({"path": str(tmp_path / "small.gguf")}),
            "--out",
            str(tmp_path / "models" / "small"),
        ),
    ]
    both = [subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) for _ in range(2)]
    said = [each.communicate(timeout=300)[0] for each in both]
    assert [each.returncode for each in both] == [0, 0], said
    assert sum("already in" in text for text in said) == 1
    assert (tmp_path / "models" / "small" / "manifest.json").exists()
    assert [path.name for path in (tmp_path / "models").iterdir()] == ["small"]
