"""The workflow on a real Slurm: whatever happens, the table is that of a run on one machine, byte for byte."""

import os
import signal

import heads
import running
from heads import chunks, head, run, runs, side_file, with_model, writer
from slurm import until

FIGURE = "results/mine/figures/delta_p.png"
INFERENCE = "rule_inference_wildcards_tiny-base_rulers_auto_0"


def in_the_middle(cluster, folder):
    """Wait until inference has finished some chunks, halt it there, and return its Slurm job and process."""
    until(lambda: len(chunks(folder)) >= 2, "the first chunks")
    process = writer(folder)
    os.kill(process, signal.SIGSTOP)
    (job,) = (job for job, comment in cluster.jobs().items() if comment == INFERENCE)
    assert len(chunks(folder)) < heads.CHUNKS
    return job, process


def check(folder, table, before):
    """Assert that the table is right, and that no chunk of those ``before`` was computed again."""
    assert (folder / heads.TABLE).read_bytes() == table
    after = chunks(folder)
    assert len(after) == heads.CHUNKS
    assert {name: after[name] for name in before} == before
    log = (folder / f"results/mine/logs/inference/{heads.SERIES}/0.log").read_text()
    assert "is finished already" in log


def test_from_nothing_to_the_figure(cluster, configfile, table, tmp_path):
    with head(cluster, tmp_path, configfile) as started:
        until(lambda: INFERENCE in cluster.jobs().values(), "the job")
        assert cluster("squeue", "--noheader", "--format=%j").startswith("deltap_")
        output = started.finish()
    assert (tmp_path / heads.TABLE).read_bytes() == table
    assert (tmp_path / FIGURE).exists()
    # Slurm's own logs lie where one sees whose they are.
    assert "logs/slurm/rule_inference/tiny-base_rulers_auto_0/" in output
    assert "logs/slurm/group_analysis.tiny-base.rulers.auto" in output


def test_a_job_is_one_copy_that_sees_all_its_devices(cluster, configfile, tmp_path):
    four = with_model(configfile, engine="single", ranks=1, gpus=4)
    answers = f"results/mine/inference/{heads.SERIES}/0/answers.parquet"
    output = run(cluster, tmp_path, four, answers, "--default-resources", "slurm_partition=pair")
    facts = side_file(tmp_path)
    assert "Partition=pair" in cluster("scontrol", "show", "job", facts["SLURM_JOB_ID"])
    assert facts["CUDA_VISIBLE_DEVICES"] == "0,1,2,3"
    assert (facts["SLURM_NTASKS"], facts["SLURM_PROCID"]) == ("1", "0")
    assert f"submitted with SLURM jobid {facts['SLURM_JOB_ID']}" in output


def test_a_requeued_job_goes_on_from_its_finished_chunks(cluster, configfile, table, tmp_path):
    with head(cluster, tmp_path, configfile, heads.TABLE) as started:
        job, process = in_the_middle(cluster, tmp_path)
        before = chunks(tmp_path)
        cluster("scontrol", "requeue", job)
        until(lambda: not runs(process), "the end of the first try")
        output = started.finish()
    check(tmp_path, table, before)
    assert side_file(tmp_path)["SLURM_JOB_ID"] == job
    assert "Trying to restart" not in output  # Slurm did it


def test_a_second_start_finishes_a_cancelled_job(cluster, configfile, table, tmp_path):
    with head(cluster, tmp_path, configfile, heads.TABLE, "--retries", "0") as started:
        job, _ = in_the_middle(cluster, tmp_path)
        before = chunks(tmp_path)
        cluster("scancel", job)
        assert "status is: 'CANCELLED'" in started.finish(check=False)
        assert started.process.returncode != 0
    run(cluster, tmp_path, configfile, heads.TABLE)
    check(tmp_path, table, before)


def test_a_second_start_waits_for_the_jobs_of_a_killed_one(cluster, configfile, table, tmp_path):
    with head(cluster, tmp_path, configfile, heads.TABLE) as started:
        job, process = in_the_middle(cluster, tmp_path)
        started.process.kill()
    running.snakemake(tmp_path, configfile, "--unlock")
    with head(cluster, tmp_path, configfile, heads.TABLE) as started:
        waits = f"Waiting for Slurm jobs of an earlier start in {tmp_path}: {job} (inference_wildcards_tiny-base_"
        until(lambda: waits in started.text(), "the second start")
        before = chunks(tmp_path)
        os.kill(process, signal.SIGCONT)
        started.finish()
    check(tmp_path, table, before)


def test_a_job_that_exceeds_its_walltime_succeeds_with_more(cluster, configfile, table, tmp_path):
    with head(cluster, tmp_path, with_model(configfile, walltime_minutes=2), heads.TABLE) as started:
        job, _ = in_the_middle(cluster, tmp_path)
        before = chunks(tmp_path)
        assert cluster("squeue", "--noheader", f"--jobs={job}", "--format=%l").strip() == "2:00"
        until(lambda: "status is: 'TIMEOUT'" in started.text(), "the timeout")
        started.finish()
        assert "32000 MB, 4 minutes" in started.text()
    check(tmp_path, table, before)


def test_a_killed_rank_is_replaced(cluster, configfile, table, tmp_path):
    with head(cluster, tmp_path, configfile, heads.TABLE) as started:
        _, process = in_the_middle(cluster, tmp_path)
        before = chunks(tmp_path)
        os.kill(process, signal.SIGKILL)
        assert "status is: 'FAILED'" in started.finish()
    check(tmp_path, table, before)
