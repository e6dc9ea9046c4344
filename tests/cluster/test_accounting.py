"""The workflow on a Slurm with an accounting database."""

import accounting
import heads
import pytest
import slurm
from heads import run, side_file


@pytest.fixture(scope="module")
def accounted(tmp_path_factory):
    """A Slurm with slurmdbd."""
    if reason := slurm.missing() or accounting.missing():
        pytest.skip(reason)
    with accounting.running(tmp_path_factory.mktemp("accounted")) as cluster:
        yield cluster


def test_states_come_from_the_database_and_jobs_are_charged_to_the_account(accounted, configfile, local, tmp_path):
    activations = f"results/mine/inference/{heads.SERIES}/0/clean.attn.exact_answer_last.safetensors"
    output = run(
        accounted, tmp_path, configfile, activations, "--slurm-status-command", "sacct",
        "--default-resources", "slurm_account=ours",
    )  # fmt: skip
    assert (tmp_path / activations).read_bytes() == (local / activations).read_bytes()
    job = side_file(tmp_path)["SLURM_JOB_ID"]
    assert f"SLURM jobid {job}" in output
    assert accounted("sacct", "-X", "-n", "-P", "-o", "State,Account", "-j", job).strip() == "COMPLETED|ours"
