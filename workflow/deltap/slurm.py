"""What a job, or the process that submits jobs, has to know about Slurm. Nothing here needs Slurm to be installed."""

import getpass
import os
import re
import shutil
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

# States in which a job has processes, or may have some yet; in any other it waits, perhaps to start again, or is over.
_RUNNING = frozenset(
    ("RUNNING", "COMPLETING", "CONFIGURING", "RESIZING", "SIGNALING", "STAGE_OUT", "STOPPED", "SUSPENDED")
)


def job_id() -> str | None:
    """Return the id of the Slurm job that this process belongs to."""
    return os.environ.get("SLURM_JOB_ID")


def is_second_copy() -> bool:
    """Return whether ``srun`` started this command several times and this is not the first.

    Some versions of Slurm and of Snakemake's plugin start one task per GPU, each with one GPU, and all of them would
    write the same files. Ranks of a parallel job are no copies; their launcher says so by ``RANK``.
    """
    return os.environ.get("SLURM_PROCID", "0") != "0" and "RANK" not in os.environ


def is_running(job: str) -> bool | None:
    """Return whether a Slurm job has processes now; None if Slurm does not say."""
    try:
        done = _slurm("squeue", "--noheader", "--states=all", f"--jobs={job}", "--format=%T")
    except (OSError, subprocess.TimeoutExpired):
        return None
    if done.returncode != 0:
        return False if "Invalid job id" in done.stderr else None
    return any(state in _RUNNING for state in done.stdout.split())


def jobs_of(directory: Path) -> dict[str, str]:
    """Return the Slurm jobs that Snakemake submitted from ``directory``: rule and wildcards by id.

    Jobs that run or wait; none where there is no Slurm or it does not answer.
    """
    if not shutil.which("squeue"):
        return {}
    try:
        done = _slurm("squeue", "--noheader", f"--user={getpass.getuser()}", "--format=%i|%k|%Z")
    except (OSError, subprocess.TimeoutExpired):
        return {}
    rows = [line.split("|", 2) for line in done.stdout.splitlines() if line.count("|") >= 2]
    return {job: comment for job, comment, folder in rows if comment.startswith("rule_") and folder == str(directory)}


def wait_for_jobs_of(directory: Path, say: Callable[[str], object], seconds: float = 10) -> None:
    """Wait until no Slurm job of an earlier start from ``directory`` runs or is queued.

    Slurm goes on with the jobs of a Snakemake that was killed, and Snakemake does not look for them. Two jobs would
    write, or on failure delete, the same files.
    """
    told: set[str] = set()
    while jobs := jobs_of(directory):
        if new := jobs.keys() - told:
            names = ", ".join(f"{job} ({jobs[job].removeprefix('rule_')})" for job in sorted(new))
            say(
                f"Waiting for Slurm jobs of an earlier start in {directory}: {names}. To go on without their work: "
                f"scancel {' '.join(sorted(new))}"
            )
            told |= new
        time.sleep(seconds)


def first_node() -> str:
    """Return the address of the first node of this job, as Slurm's other nodes know it."""
    names = _slurm("scontrol", "show", "hostnames", os.environ["SLURM_JOB_NODELIST"]).stdout.split()
    address = re.search(r"NodeAddr=(\S+)", _slurm("scontrol", "show", "node", names[0], "--oneliner").stdout)
    return address[1] if address else names[0]


def _slurm(*command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, capture_output=True, text=True, timeout=30)
