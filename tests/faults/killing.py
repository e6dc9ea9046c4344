"""A run whose processes are killed at random moments, and started again with the README's commands until it ends."""

import random
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import psutil
import running

from deltap.files import file_sha256

PATIENCE = 1500  # seconds for all starts together
_SCRIPT = re.compile(r"scripts/(\w+)\.py")


@dataclass
class Killer:
    """Starts a run in ``folder`` and kills ``kills`` of its processes.

    What is killed and when depends on ``seed`` and on how fast the machine is.
    """

    folder: Path
    configfile: Path
    kills: int
    seed: int
    killed: list[str] = field(default_factory=list)
    """What was killed: snakemake, or the kind of process and the script that it belongs to."""
    chunks: dict[Path, tuple[int, int]] = field(default_factory=dict)
    """Inode and time of each chunk of the store, as it was first seen whole."""

    def __post_init__(self) -> None:
        self._random = random.Random(self.seed)
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
                return said
            if "Directory cannot be locked" in said or (self.killed and self.killed[-1] == "snakemake"):
                subprocess.run([*self._command, "--unlock"], check=True, capture_output=True)
        raise AssertionError(f"not finished after {PATIENCE} seconds; killed: {self.killed}; {said}")

    def _start(self) -> tuple[str, int]:
        log = self.folder / f"output.{len(list(self.folder.glob('output.*')))}.txt"
        with log.open("w") as stream:
            process = subprocess.Popen(self._command, stdout=stream, stderr=subprocess.STDOUT, start_new_session=True)
            while process.poll() is None:
                if len(self.killed) < self.kills:
                    with_patience = time.monotonic() + self._random.uniform(0.5, 15)
                    while process.poll() is None and time.monotonic() < with_patience:
                        time.sleep(0.05)
                    self._kill_one(process)
                else:
                    time.sleep(0.2)
                self.look()
        return log.read_text(), process.returncode

    def _kill_one(self, start: subprocess.Popen) -> None:
        victims = list(_processes(start.pid))
        if not victims:
            return
        victim = self._random.choice(victims)
        try:
            name = "snakemake" if victim.pid == start.pid else _called(victim)
            victim.kill()
        except psutil.Error:
            return  # it was quicker
        if victim.pid == start.pid:
            start.wait()
        self.killed.append(name)

    def look(self) -> None:
        """Note the chunks that are finished; none that was may be another one now."""
        for path in sorted(self.folder.glob("work/chunks/??/*.safetensors")):
            facts = path.stat()
            now = (facts.st_ino, facts.st_mtime_ns)
            assert self.chunks.setdefault(path, now) == now, f"{path} was computed again; killed: {self.killed}"

    def left_behind(self) -> list[Path]:
        """Return temporary files and locks that nobody needs any more."""
        hidden = [path for path in self.folder.rglob(".*") if ".snakemake" not in path.parts]
        locks = list(self.folder.glob("work/chunks/locks/*"))
        return sorted(path for path in {*hidden, *locks} if path.is_file())


def _processes(pid: int) -> Iterator[psutil.Process]:
    """Yield a start of Snakemake and everything that it started."""
    try:
        start = psutil.Process(pid)
        yield from (start, *start.children(recursive=True))
    except psutil.Error:
        return


def _called(process: psutil.Process) -> str:
    line = process.cmdline()
    scripts = _SCRIPT.findall(" ".join(line))
    kind = Path(line[0]).name if line else "?"
    return f"{kind} of {scripts[-1] if scripts else 'a job'}"


def tables(folder: Path) -> dict[str, str]:
    """Return the checksums of a run's tables and of its verdict."""
    (results,) = (folder / "results").iterdir()
    chosen = [*results.glob("*.parquet"), *results.glob("*.csv"), results / "verdict.json"]
    return {path.name: file_sha256(path) for path in sorted(chosen)}
