"""A command with what it took: time, processor time and memory of its whole process tree."""

import os
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil

ROOT = Path(__file__).parent.parent


@dataclass(frozen=True)
class Took:
    """What a command took."""

    seconds: float
    processor_seconds: float
    """Of all its processes together."""
    gigabytes: float
    """The highest sum, over its processes, of memory that stands in RAM; what two share counts twice."""


def run(command: Sequence[object], folder: Path | None = None) -> Took:
    """Run a command; raise RuntimeError with the end of its output if it fails."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "workflow")}
    before, start = os.times(), time.perf_counter()
    with subprocess.Popen(
        list(map(str, command)),
        cwd=folder,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as process:
        highest = 0
        root = psutil.Process(process.pid)
        while process.poll() is None:
            highest = max(highest, _resident(root))
            time.sleep(0.05)
        assert process.stdout
        output = process.stdout.read()
    seconds, after = time.perf_counter() - start, os.times()
    if process.returncode:
        raise RuntimeError(f"{' '.join(map(str, command))[:300]} …: {output[-2000:]}")
    used = after.children_user + after.children_system - before.children_user - before.children_system
    return Took(seconds, used, highest / 1e9)


def script(name: str, *options: object) -> Took:
    """Run one of the project's scripts."""
    return run([sys.executable, ROOT / "scripts" / f"{name}.py", *options])


def _resident(process: psutil.Process) -> int:
    total = 0
    try:
        for each in (process, *process.children(recursive=True)):
            total += each.memory_info().rss
    except psutil.NoSuchProcess:  # it ended meanwhile
        pass
    return total
