"""The workflow on a real Slurm; whatever happens on the way, the table is that of a run on one machine, byte for byte."""

import os
import shutil
import signal
import subprocess
import sys

import heads
import pytest
import running
import yaml
from heads import chunks, head, run, side_file, until, writer

FIGURE = "results/mine/figures/delta_p.png"
INFERENCE = "rule_inference_wildcards_tiny-base_rulers_auto_0"


def with_model(configfile, **change):
    """The same configuration with another entry of its model."""
    folder = configfile.parent
    definitions = yaml.safe_load((folder / "my_models.yaml").read_text())
    definitions["tiny-base"] |= change
    path = running.write_yaml(folder / f"models-{len(list(folder.glob('models-*')))}.yaml", definitions)
    return running.changed(configfile, model_files=[str(path)])


def in_the_middle(cluster, folder):
    """Wait until inference has finished some chunks, stop it there, and return its Slurm job and process."""
    until(lambda: len(chunks(folder)) >= 2, "the first chunks")
    process = writer(folder)
    os.kill(process, signal.SIGSTOP)
    (job,) = (job for job, comment in cluster.jobs().items() if comment == INFERENCE)
    assert len(chunks(folder)) < heads.CHUNKS
    return job, process


def is_whole(folder, table, before):
    """Assert that the table is right, and that no chunk of those ``before`` was computed again."""
    assert (folder / heads.TABLE).read_bytes() == table
    after = chunks(folder)
    assert len(after) == heads.CHUNKS
    assert {name: after[name] for name in before} == before
    log = (folder / f"results/mine/logs/inference/{heads.SERIES}/0.log").read_text()
    assert log.count("is finished already") >= len(before)


def test_from_nothing_to_the_figure_with_all_devices_in_one_copy(cluster, configfile, table, tmp_path):
    with head(cluster, tmp_path, with_model(configfile, gpus=4)) as started:
        until(lambda: INFERENCE in cluster.jobs().values(), "the job")
        names = cluster("squeue", "--noheader", "--format=%j %b").split()
        assert names[0].startswith("deltap_")
        assert names[1] == "gres:gpu:4" or names[1].endswith(":4")
        output = started.finish()
    assert (tmp_path / heads.TABLE).read_bytes() == table
    assert (tmp_path / FIGURE).exists()
    facts = side_file(tmp_path)
    assert facts["CUDA_VISIBLE_DEVICES"] == "0,1,2,3"
    assert (facts["SLURM_NTASKS"], facts["SLURM_PROCID"]) == ("1", "0")
    assert f"submitted with SLURM jobid {facts['SLURM_JOB_ID']}" in output
    # Where Slurm's own logs are says which job it was.
    assert "logs/slurm/rule_inference/tiny-base_rulers_auto_0/" in output
    assert "logs/slurm/group_analysis.tiny-base.rulers.auto" in output


def test_a_requeued_job_goes_on_from_its_finished_chunks(cluster, configfile, table, tmp_path):
    with head(cluster, tmp_path, configfile, heads.TABLE) as started:
        job, process = in_the_middle(cluster, tmp_path)
        before = chunks(tmp_path)
        cluster("scontrol", "requeue", job)
        until(lambda: not alive(process), "the job's end")
        output = started.finish()
    is_whole(tmp_path, table, before)
    assert side_file(tmp_path)["SLURM_JOB_ID"] == job  # the same job, started again
    assert "Trying to restart" not in output


def test_a_cancelled_job_is_finished_by_a_second_start(cluster, configfile, table, tmp_path):
    with head(cluster, tmp_path, configfile, heads.TABLE, "--retries", "0") as started:
        job, _ = in_the_middle(cluster, tmp_path)
        before = chunks(tmp_path)
        cluster("scancel", job)
        assert "status is: 'CANCELLED'" in started.finish(check=False)
        assert started.process.returncode != 0
    run(cluster, tmp_path, configfile, heads.TABLE)
    is_whole(tmp_path, table, before)


def test_jobs_of_a_killed_head_are_waited_for_by_the_second_start(cluster, configfile, table, tmp_path):
    with head(cluster, tmp_path, configfile, heads.TABLE) as started:
        job, process = in_the_middle(cluster, tmp_path)
        started.process.kill()
    running.snakemake(tmp_path, configfile, "--unlock")
    with head(cluster, tmp_path, configfile, heads.TABLE) as started:
        until(lambda: f"Waiting for Slurm jobs of an earlier start in {tmp_path}: {job} (" in started.text(), "it")
        before = chunks(tmp_path)
        os.kill(process, signal.SIGCONT)
        started.finish()
    is_whole(tmp_path, table, before)


def test_a_job_that_exceeds_its_walltime_succeeds_with_more(cluster, configfile, table, tmp_path):
    with head(cluster, tmp_path, with_model(configfile, walltime_minutes=1), heads.TABLE) as started:
        job, _ = in_the_middle(cluster, tmp_path)
        before = chunks(tmp_path)
        assert "1:00" in cluster("squeue", "--noheader", f"--jobs={job}", "--format=%l")
        until(lambda: "status is: 'TIMEOUT'" in started.text(), "the timeout", 300)
        assert "32000 MB, 2 minutes" in started.text()
        started.finish()
    is_whole(tmp_path, table, before)


def test_a_killed_rank_is_tried_again(cluster, configfile, table, tmp_path):
    with head(cluster, tmp_path, configfile, heads.TABLE) as started:
        _, process = in_the_middle(cluster, tmp_path)
        before = chunks(tmp_path)
        os.kill(process, signal.SIGKILL)
        assert "status is: 'FAILED'" in started.finish()
    is_whole(tmp_path, table, before)


def alive(process):
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    return True


def test_a_lock_names_its_slurm_job_and_is_taken_over_when_that_has_ended(cluster, tmp_path):
    """The owner is on another machine, so that only Slurm can tell."""
    hold = "import json; from pathlib import Path; from deltap.lock import Owner; from dataclasses import asdict; "
    hold += "owner = asdict(Owner.this_process()) | {'host': 'elsewhere'}; "
    hold += "Path('lock').write_text(json.dumps(owner)); import time; time.sleep(600)"
    take = "from pathlib import Path; from deltap.lock import locked\nwith locked(Path('lock'), 'a/b', 0.5): print('had it')"
    first = submit(cluster, tmp_path, hold)
    until((tmp_path / "lock").exists, "the first job")
    second = submit(cluster, tmp_path, take)
    until(lambda: not cluster.jobs("PENDING,RUNNING").keys() - {first}, "the second job")
    assert f"a/b is being computed by Slurm job {first}, process" in output_of(tmp_path, second)
    assert f"'scancel {first}'" in output_of(tmp_path, second)
    cluster("scancel", first)
    third = submit(cluster, tmp_path, take)
    until(lambda: not cluster.jobs("PENDING,RUNNING,COMPLETING"), "the third job")
    assert "had it" in output_of(tmp_path, third)
    assert not (tmp_path / "lock").exists()


def submit(cluster, folder, program):
    (folder / "program.py").write_text(program)
    job = cluster("sbatch", "--parsable", f"--chdir={folder}", "--output=%j.txt",
                  f"--wrap=exec {sys.executable} -c '{program}'".replace("'", '"', 0)) if False else cluster(
        "sbatch", "--parsable", f"--chdir={folder}", "--output=%j.txt", str(script(folder, program)))  # fmt: skip
    return job.strip()
