"""What a job knows about Slurm: who else writes, whether it is a copy, and that it does its own work only."""

import shutil
import subprocess
import sys

import heads
import pytest
import running
from heads import head, run
from slurm import until

HOLD = """
import json, time
from dataclasses import asdict
from pathlib import Path
from deltap.lock import Owner
Path("lock").write_text(json.dumps(asdict(Owner.this_process()) | {"host": "elsewhere"}))
time.sleep(600)
"""
TAKE = """
from pathlib import Path
from deltap.lock import locked
with locked(Path("lock"), "qwen/popqa", patience=0.5):
    print("had it")
"""


@pytest.fixture
def submit(cluster, tmp_path):
    """Submit a Python program; returns its job and a function that returns what it printed, once it ends."""

    def submitted(program):
        path = tmp_path / f"program-{len(list(tmp_path.iterdir()))}.py"
        path.write_text(f"#!{sys.executable}\nimport sys\nsys.path.insert(0, '{running.ROOT}/workflow')\n{program}")
        job = cluster("sbatch", "--parsable", f"--chdir={tmp_path}", "--output=%j.txt", str(path)).strip()

        def output():
            until(lambda: job not in cluster.jobs("PENDING,RUNNING,COMPLETING"), f"job {job}")
            return (tmp_path / f"{job}.txt").read_text()

        return job, output

    return submitted


def test_a_lock_names_its_slurm_job_and_is_taken_over_when_that_has_ended(cluster, submit, tmp_path):
    """The owner says that it is on another machine, so that only Slurm can tell whether it lives."""
    owner, _ = submit(HOLD)
    until((tmp_path / "lock").exists, "the first owner")
    _, second = submit(TAKE)
    refused = second()
    assert f"qwen/popqa is being computed by Slurm job {owner}, process" in refused
    assert f"stop it with 'scancel {owner}'" in refused
    cluster("scancel", owner)
    _, third = submit(TAKE)
    assert "had it" in third()
    assert not (tmp_path / "lock").exists()


def test_a_requeued_job_takes_its_own_lock_over(cluster, submit, tmp_path):
    program = TAKE.replace("with locked", "import os\nif os.path.exists('lock'):\n  with locked") + "\nelse:\n" + (
        "".join(f"  {line}\n" for line in HOLD.strip().splitlines())
    )  # fmt: skip
    job, output = submit(program)
    until((tmp_path / "lock").exists, "the first try")
    cluster("scontrol", "requeue", job)
    assert "had it" in output()


def test_a_second_copy_of_a_job_leaves_everything_to_the_first(cluster, configfile, tmp_path):
    questions = "results/mine/questions/rulers.parquet"
    command = [
        sys.executable, "-m", "snakemake", "--snakefile", str(running.ROOT / "Snakefile"), "--directory", str(tmp_path),
        "--configfile", str(configfile), "--cores", "1", questions,
    ]  # fmt: skip
    done = subprocess.run(
        ["srun", "--ntasks=3", "--gpus=3", "--ntasks-per-gpu=1", *command],
        env=cluster.environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=120,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout
    assert done.stdout.count("A second copy of the same Slurm job") == 2
    assert done.stdout.count("Reading the questions of rulers") == 1
    assert (tmp_path / questions).exists()

    # A script without Snakemake: the copies leave even the log alone.
    script = [sys.executable, str(running.ROOT / "scripts" / "samples.py"), "--answers", "none", "--questions", "none"]
    log = tmp_path / "log.txt"
    done = subprocess.run(
        ["srun", "--ntasks=2", *script, "--out", "out", "--report", "out.md", "--log", str(log)],
        env=cluster.environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=120,
    )  # fmt: skip
    assert done.stdout.count("is a second copy of the job") == 1
    assert log.read_text().count("error: ") == 1


def test_a_script_edited_while_jobs_are_queued_makes_them_redo_nothing(cluster, configfile, table, tmp_path):
    root = tmp_path / "repository"
    names = subprocess.run(["git", "ls-files"], cwd=running.ROOT, check=True, capture_output=True, text=True).stdout
    for name in names.splitlines():
        if name.startswith(("Snakefile", "config/", "scripts/", "workflow/", "envs/")):
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(running.ROOT / name, root / name)
    folder = tmp_path / "run"
    folder.mkdir()
    questions = folder / "results/mine/questions/rulers.parquet"
    cluster("scontrol", "update", "PartitionName=main", "State=DOWN")
    try:
        with head(cluster, folder, configfile, heads.TABLE, root=root) as started:
            until(lambda: cluster.jobs("PENDING"), "the queued job")
            script = root / "scripts" / "questions.py"
            script.write_text(script.read_text().replace("def main(", "def unused():\n    return 1\n\n\ndef main(", 1)
                              .replace("    stage =", "    unused()\n    stage =", 1))  # fmt: skip
            made = questions.stat().st_mtime_ns
            cluster("scontrol", "update", "PartitionName=main", "State=UP")
            output = started.finish()
    finally:
        cluster("scontrol", "update", "PartitionName=main", "State=UP")
    assert questions.stat().st_mtime_ns == made
    assert output.count("Reading the questions") == 1
    assert (folder / heads.TABLE).read_bytes() == table
    # The edit does count: the next start reads the questions again.
    assert running.planned(run(cluster, folder, configfile, heads.TABLE, "-n", root=root))["questions"] == 1
