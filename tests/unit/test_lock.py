"""The lock on a series: one writer, whoever died before, wherever it was."""

import errno
import json
import multiprocessing
import os
import socket
import subprocess
import sys
import time
from dataclasses import asdict, replace

import pytest

from deltap.errors import DeltapError
from deltap.lock import Owner, locked


@pytest.fixture
def path(tmp_path):
    return tmp_path / "locks" / "series.lock"


@pytest.fixture(autouse=True)
def _outside_slurm(monkeypatch):
    for name in ("SLURM_JOB_ID", "SLURM_PROCID"):
        monkeypatch.delenv(name, raising=False)


def held_by(path, owner):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(asdict(owner)))


def test_the_lock_names_its_owner_and_goes_with_it(path):
    with locked(path, "m/d"):
        owner = json.loads(path.read_text())
        assert (owner["host"], owner["pid"], owner["slurm_job"]) == (socket.gethostname(), os.getpid(), None)
    assert not list(path.parent.iterdir())


def test_a_file_system_without_hard_links_is_refused_by_name(path, monkeypatch):
    def refused(*arguments):
        raise PermissionError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(os, "link", refused)
    with pytest.raises(DeltapError, match=r"series\.lock: cannot be locked \(Operation not.*hard links"):
        locked(path, "m/d").__enter__()
    assert not list(path.parent.iterdir())


def test_the_lock_is_released_by_an_error(path):
    with pytest.raises(ValueError, match="x"), locked(path, "m/d"):
        raise ValueError("x")
    assert not path.exists()


def test_a_second_writer_is_told_who_the_first_is_and_what_to_do(path):
    with (
        locked(path, "m/d"),
        pytest.raises(DeltapError, match=rf"m/d is being computed by process {os.getpid()} on .*kill {os.getpid()}"),
        locked(path, "m/d", patience=0.1),
    ):
        pytest.fail("both hold it")
    assert not path.exists()


def test_a_writer_that_ends_soon_is_waited_for(path):
    hold = f"""
import sys, time
from pathlib import Path
from deltap.lock import locked
with locked(Path({str(path)!r}), "m/d"):
    print("held", flush=True)
    time.sleep(1)
"""
    first = subprocess.Popen([sys.executable, "-c", hold], stdout=subprocess.PIPE, text=True)
    assert first.stdout.readline() == "held\n"
    with locked(path, "m/d", patience=30):
        assert first.wait(5) == 0


def test_a_killed_writers_lock_is_taken_over(path):
    hold = f"""
from pathlib import Path
from deltap.lock import locked
with locked(Path({str(path)!r}), "m/d"):
    print("held", flush=True)
    input()
"""
    first = subprocess.Popen([sys.executable, "-c", hold], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    first.stdout.readline()
    first.kill()  # and not waited for: a zombie writes nothing
    time.sleep(0.2)
    with locked(path, "m/d", patience=0.1):
        assert json.loads(path.read_text())["pid"] == os.getpid()
    first.wait()


def test_another_process_with_the_same_id_is_not_the_owner(path):
    held_by(path, replace(Owner.this_process(), started=1.0))
    with locked(path, "m/d", patience=0.1):
        pass


def test_of_another_machine_nothing_is_known(path):
    held_by(path, Owner("elsewhere", 1, 1.0))
    with (
        pytest.raises(DeltapError, match=rf"process 1 on elsewhere.*another machine.*delete {path}"),
        locked(path, "", 0.1),
    ):
        pytest.fail("taken from another machine")  # fmt: skip
    assert path.exists()


def test_where_slurm_does_not_answer_nothing_is_known_of_its_jobs(path, monkeypatch):
    monkeypatch.setenv("PATH", "")
    held_by(path, Owner("elsewhere", 1, 1.0, slurm_job="17"))
    with pytest.raises(DeltapError, match=r"Slurm job 17.*Slurm does not answer"), locked(path, "m/d", 0.1):
        pytest.fail("taken from a job")


def test_a_requeued_job_takes_its_own_lock_over_on_another_node(path, monkeypatch):
    monkeypatch.setenv("SLURM_JOB_ID", "17")
    held_by(path, Owner("elsewhere", 1, 1.0, slurm_job="17"))
    with locked(path, "m/d", patience=0.1):
        assert json.loads(path.read_text())["slurm_job"] == "17"


def test_what_is_no_lock_is_left_alone(path):
    path.parent.mkdir()
    path.write_text("hello")
    with pytest.raises(DeltapError, match="not a lock"), locked(path, "m/d", patience=0.1):
        pytest.fail("taken")
    assert path.read_text() == "hello"


def _count(path, total, number):
    for _ in range(number):
        with locked(path, "m/d", patience=60):
            value = int(total.read_text())
            time.sleep(0.002)
            total.write_text(str(value + 1))


def test_of_many_writers_one_at_a_time_has_it(path, tmp_path):
    total = tmp_path / "total"
    total.write_text("0")
    processes = [multiprocessing.get_context("spawn").Process(target=_count, args=(path, total, 5)) for _ in range(4)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    assert total.read_text() == "20"
