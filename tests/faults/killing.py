"""A run whose processes are killed at random moments, and started again with the README's commands until it ends."""

import random
import re
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import psutil
import running

from deltap.files import file_sha256

PATIENCE = 1500  # seconds for all starts together
LATE = 3.0  # seconds after which a job that was just seen is killed at the latest; Snakemake lives longer
SNAKEMAKE = "snakemake"
_SCRIPT = re.compile(r"scripts/(\w+)\.py")


@dataclass
class Killer:
    """Starts a run in ``folder`` and kills a process of each stage, and Snakemake itself, ``times`` times.

    Which process of a stage and when depends on ``seed`` and on how fast the machine is; a stage that was quicker than
    its killer gets away.
    """

    folder: Path
    configfile: Path
    times: int
    seed: int
    killed: Counter[str] = field(default_factory=Counter)
    """How often each stage was killed, named as its script, or ``snakemake``."""
    chunks: dict[Path, tuple[int, int]] = field(default_factory=dict)
    """Inode and time of each chunk of the store, as it was first seen whole."""

    def __post_init__(self) -> None:
        self._random = random.Random(self.seed)
        self._started: set[psutil.Process] = set()
        self._command = [
            sys.executable, "-m", "snakemake", "--snakefile", str(running.ROOT / "Snakefile"),
            "--workflow-profile", str(running.ROOT / "config" / "profiles" / "local"),
            "--directory", str(self.folder), "--configfile", str(self.configfile), "--cores", "2",
        ]  # fmt: skip

    def run(self) -> str:
        """Start again until the run ends by itself; return what the last start said."""
        end = time.monotonic() + PATIENCE
        while time.monotonic() < end:
            said, status = self._start()
            if status == 0:
                psutil.wait_procs(self._started, timeout=60)  # jobs of a killed start go on
                return said
            if "Directory cannot be locked" in said or status < 0:
                subprocess.run([*self._command, "--unlock"], check=True, capture_output=True)
        raise AssertionError(f"not finished after {PATIENCE} seconds; killed: {self.killed}; {said}")

    def _start(self) -> tuple[str, int]:
        log = self.folder / f"output.{len(list(self.folder.glob('output.*')))}.txt"
        due: dict[str, float] = {}
        with log.open("w") as stream:
            process = subprocess.Popen(self._command, stdout=stream, stderr=subprocess.STDOUT, start_new_session=True)
            while process.poll() is None:
                time.sleep(0.05)
                stages = _stages(process.pid)
                self._started |= {each for stage in stages.values() for each in stage}
                for stage in stages:
                    late = LATE * (5 if stage == SNAKEMAKE else 1)
                    due.setdefault(stage, time.monotonic() + self._random.uniform(0, late))
                    if self.killed[stage] < self.times and time.monotonic() >= due[stage]:
                        self._kill(stage, self._random.choice(stages[stage]))
                        due.pop(stage)
                self.look()
        return log.read_text(), process.returncode

    def _kill(self, stage: str, victim: psutil.Process) -> None:
        with suppress(psutil.Error):  # it was quicker
            victim.kill()
            self.killed[stage] += 1
            print(f"{sum(self.killed.values())}: {stage}", flush=True)

    def look(self) -> None:
        """Note the chunks that are finished; none that was may be another one now."""
        for path in sorted(self.folder.glob("work/chunks/??/[!.]*.safetensors")):
            facts = path.stat()
            now = (facts.st_ino, facts.st_mtime_ns)
            assert self.chunks.setdefault(path, now) == now, f"{path} was computed again; killed: {self.killed}"

    def left_behind(self) -> list[Path]:
        """Return temporary files and locks that nobody needs any more."""
        hidden = [path for path in self.folder.rglob(".*") if ".snakemake" not in path.parts]
        locks = list(self.folder.glob("work/chunks/locks/*"))
        return sorted(path for path in {*hidden, *locks} if path.is_file())


def _stages(pid: int) -> dict[str, list[psutil.Process]]:
    """Return the processes of a start: Snakemake's own, and those of each stage's jobs, shells and ranks included."""
    found: dict[str, list[psutil.Process]] = {}
    for process in _processes(pid):
        with suppress(psutil.Error):
            scripts = _SCRIPT.findall(" ".join(process.cmdline()))
            stage = SNAKEMAKE if process.pid == pid else scripts[-1] if scripts else None
            if stage:
                found.setdefault(stage, []).append(process)
    return found


def _processes(pid: int) -> Iterator[psutil.Process]:
    """Yield a start of Snakemake and everything that it started."""
    try:
        start = psutil.Process(pid)
        yield from (start, *start.children(recursive=True))
    except psutil.Error:
        return


def tables(folder: Path) -> dict[str, str]:
    """Return the checksums of a run's tables and of its verdict."""
    (results,) = (folder / "results").iterdir()
    chosen = [*results.glob("*.parquet"), *results.glob("*.csv"), results / "verdict.json"]
    return {path.name: file_sha256(path) for path in sorted(chosen)}
