"""Starting scripts in several ranks, as the rules do."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).parents[2]


def start(script: Path, *arguments: object, ranks: int = 2, options: tuple[str, ...] = ()) -> subprocess.Popen:
    """Start ``script`` in ``ranks`` processes; standard output and error of the first one are in one pipe."""
    command = [sys.executable, str(ROOT / "scripts" / "launch.py"), "--ranks", str(ranks), *options, "--", str(script)]
    path = os.pathsep.join([str(ROOT / "workflow"), str(ROOT / "tests")])
    return subprocess.Popen(
        [*command, *map(str, arguments)],
        env={**os.environ, "PYTHONPATH": path, "TOKENIZERS_PARALLELISM": "false"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def finish(started: subprocess.Popen, seconds: float = 300) -> str:
    """Return what a started job printed; it must succeed."""
    output, _ = started.communicate(timeout=seconds)
    assert started.returncode == 0, output
    return output


def appear(paths: list[Path], seconds: float = 60) -> None:
    """Wait until all files are there."""
    until = time.monotonic() + seconds
    while not all(path.exists() for path in paths):
        assert time.monotonic() < until, f"not there after {seconds} s: {paths}"
        time.sleep(0.1)


def runs(pid: int) -> bool:
    """Tell whether a process lives (a zombie does not)."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def gone(pids: list[int], seconds: float) -> bool:
    """Tell whether all processes end within ``seconds``."""
    until = time.monotonic() + seconds
    while any(map(runs, pids)) and time.monotonic() < until:
        time.sleep(0.1)
    return not any(map(runs, pids))


KILLS = (signal.SIGTERM, signal.SIGKILL)
