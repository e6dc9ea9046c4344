"""Starting the workflow on a cluster as a user does, and looking at its jobs while they run."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import running
import yaml
from safetensors import safe_open
from slurm import Cluster

CHUNK = 4
CHUNKS = len(running.SUBJECTS) // CHUNK
TABLE = "results/mine/delta_p.parquet"
SERIES = "tiny-base/rulers/auto"
PROFILE = running.ROOT / "config" / "profiles" / "slurm"


def with_model(configfile: Path, **change: object) -> Path:
    """Write the same configuration with another entry of its model, and return its path."""
    folder = configfile.parent
    (defined,) = yaml.safe_load(configfile.read_text())["model_files"]
    definitions = yaml.safe_load(Path(defined).read_text())
    definitions["tiny-base"] |= change
    path = running.write_yaml(folder / f"models-{len(list(folder.glob('models-*')))}.yaml", definitions)
    return running.changed(configfile, model_files=[str(path)])


def configured(complete: Path) -> Path:
    """Write the part of a project's configuration that runs here, and return its path."""
    return running.changed(
        with_model(complete, engine="accelerate", ranks=2),
        models=["tiny-base"],
        datasets=["rulers"],
        formats=["png"],
        inference={"sites": ["attn"], "positions": ["exact_answer_last"], "chunk_questions": CHUNK},
    )


class Head:
    """A running ``snakemake`` that submits jobs from ``folder``."""

    def __init__(self, cluster: Cluster, folder: Path, configfile: Path, *arguments: str, root: Path = running.ROOT):
        self.folder = folder
        self.output = folder / f"head-{len(list(folder.glob('head-*')))}.txt"
        command = [
            sys.executable, "-m", "snakemake", "--snakefile", str(root / "Snakefile"), "--workflow-profile",
            str(root / "config" / "profiles" / "slurm"), "--configfile", str(configfile), "--latency-wait", "10",
            "--slurm-init-seconds-before-status-checks", "1", *arguments,
        ]  # fmt: skip
        with self.output.open("w") as stream:
            self.process = subprocess.Popen(
                command, cwd=folder, env=cluster.environment, stdout=stream, stderr=subprocess.STDOUT
            )

    def text(self) -> str:
        """Return what it printed so far."""
        return self.output.read_text()

    def finish(self, check: bool = True, seconds: float = 900) -> str:
        """Wait until it ends and return what it printed."""
        self.process.wait(seconds)
        assert not check or self.process.returncode == 0, self.text()
        return self.text()


@contextmanager
def head(cluster: Cluster, folder: Path, configfile: Path, *arguments: str, **more: Path) -> Iterator[Head]:
    """Start the workflow; it does not outlive the block."""
    started = Head(cluster, folder, configfile, *arguments, **more)
    try:
        yield started
    finally:
        started.process.kill()
        started.process.wait()


def run(cluster: Cluster, folder: Path, configfile: Path, *arguments: str, **more: Path) -> str:
    """Run the workflow to its end and return what it printed."""
    with head(cluster, folder, configfile, *arguments, **more) as started:
        return started.finish()


def chunks(folder: Path) -> dict[str, int]:
    """Return the finished chunks of inference, and when each was written.

    A chunk of answers alone is kept after its activations; a job that ends in between leaves it out.
    """
    finished = {}
    for path in (folder / "work" / "chunks").glob("??/[!.]*.safetensors"):
        with safe_open(path, "np") as file:
            if file.keys():
                finished[path.name] = path.stat().st_mtime_ns
    return finished


def writer(folder: Path) -> int | None:
    """Return the process that holds the lock on the series."""
    for lock in (folder / "work" / "chunks" / "locks").glob("*.lock"):
        return json.loads(lock.read_text())["pid"]
    return None


def runs(process: int) -> bool:
    """Return whether a process is there."""
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    return True


def side_file(folder: Path) -> dict:
    """Return the facts that the inference job recorded about itself."""
    return json.loads((folder / f"results/mine/logs/inference/{SERIES}/0.json").read_text())
