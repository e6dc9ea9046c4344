"""The launcher: all ranks run or none, and a failure is told once, by the rank that failed first."""

import json
import signal
import socket
import sys
from pathlib import Path

import pytest
import starting

from deltap import ranks

SCRIPT = Path(__file__).with_name("failing.py")
pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc"),
    pytest.mark.xdist_group("distributed"),  # two processes at a time are enough for two cores
]


def start(folder, *arguments, **keywords):
    log = folder / "job.log"
    return starting.start(
        SCRIPT, "--folder", folder, "--log", log, *arguments, options=("--log", str(log), "--threads", "3"), **keywords
    )


def pids(folder, number=2):
    files = [folder / f"{rank}.pid" for rank in range(number)]
    starting.appear(files)
    return [int(file.read_text()) for file in files]


@pytest.mark.parametrize("number", [1, 2, 4])
def test_every_rank_runs_and_the_first_one_logs(tmp_path, number):
    output = starting.finish(start(tmp_path, ranks=number))
    assert [(tmp_path / f"{rank}.done").read_text() for rank in range(number)] == [str(number)] * number
    assert output.splitlines() == ["finished with 3 threads"]
    assert (tmp_path / "job.log").read_text().splitlines() == ["finished with 3 threads"]
    assert json.loads((tmp_path / "job.json").read_text())["status"] == 0


@pytest.mark.parametrize("rank", [0, 1])
@pytest.mark.parametrize(
    ("fail", "message"),
    [
        ("error", "questions.tsv:7: no question"),
        ("bug", "unexpected error"),
        ("kill", "killed by SIGKILL"),
        ("status", "ended with status 3"),
    ],
)
def test_all_fail_when_one_fails_and_its_reason_stands_first(tmp_path, rank, fail, message):
    job = start(tmp_path, "--fail", fail, "--rank", rank)
    output, _ = job.communicate(timeout=60)
    assert job.returncode == 1
    errors = [line for line in output.splitlines() if line != "the last words"]
    assert errors[0].startswith("error: ")
    assert message in errors[0]
    assert f"rank {rank} of 2" in errors[0] or rank == 0 or fail == "error"
    assert output.count("error: ") == 1
    assert ("Traceback" in output) == (fail == "bug")
    assert message in (tmp_path / "job.log").read_text()
    assert json.loads((tmp_path / "job.json").read_text())["status"] == 1
    assert starting.gone(pids(tmp_path), seconds=0)


def test_a_killed_ranks_last_words_are_told(tmp_path):
    output, _ = start(tmp_path, "--fail", "kill").communicate(timeout=60)
    assert "the last words" in output


@pytest.mark.parametrize("kill", starting.KILLS)
def test_no_rank_outlives_the_launcher(tmp_path, kill):
    job = start(tmp_path, "--fail", "wait")
    running = pids(tmp_path)
    job.send_signal(kill)
    output, _ = job.communicate(timeout=60)
    assert starting.gone(running, seconds=10)
    assert job.returncode != 0
    if kill == signal.SIGTERM:
        assert "stopped by SIGTERM" in output


def test_a_rank_whose_launcher_is_gone_already_ends(monkeypatch, tmp_path):
    import subprocess

    monkeypatch.setenv(ranks.LAUNCHER, "1")
    code = "from deltap import ranks; ranks.end_with_launcher(); print('still here')"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (1, "")


def test_jobs_share_a_node_and_no_port_is_fixed(tmp_path):
    with socket.socket() as taken:
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            taken.bind(("", 29500))  # torch's default
            taken.listen()
        except OSError:
            pass  # somebody else's; as good
        folders = [tmp_path / name for name in ("a", "b")]
        for folder in folders:
            folder.mkdir()
        for job in [start(folder, "--fail", "port") for folder in folders]:
            starting.finish(job)
    ports = [(folder / "0.port").read_text() for folder in folders]
    assert [(folder / "1.port").read_text() for folder in folders] == ports
    assert len(set(ports)) == 2


def test_accelerates_launcher_starts_the_ranks_just_so(tmp_path, monkeypatch):
    """It is used on GPUs; here it is given the same job without any."""
    code = (
        "import sys, torch; from deltap.launch import launch; torch.cuda.is_available = lambda: True; "
        "launch(sys.argv[1:], 2, 3, 'accelerate', 'auto')"
    )
    import os
    import subprocess

    command = [sys.executable, "-c", code, str(SCRIPT), "--folder", str(tmp_path), "--log", str(tmp_path / "job.log")]
    done = subprocess.run(
        command,
        env={**os.environ, "PYTHONPATH": str(starting.ROOT / "workflow")},
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "1.done").read_text() == "2"
    assert (tmp_path / "job.log").read_text() == "finished with 3 threads\n"
