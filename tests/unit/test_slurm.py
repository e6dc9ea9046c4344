"""What a process knows about Slurm where there is none."""

import pytest

from deltap import slurm
from deltap.settings import PathSettings


@pytest.mark.parametrize(
    ("environment", "copy"),
    [
        ({}, False),
        ({"SLURM_PROCID": "0", "SLURM_NTASKS": "2"}, False),
        ({"SLURM_PROCID": "1", "SLURM_NTASKS": "2"}, True),
        ({"SLURM_PROCID": "1", "RANK": "1", "WORLD_SIZE": "2"}, False),  # a rank on the second node
    ],
)
def test_the_first_task_and_ranks_are_no_copies(monkeypatch, environment, copy):
    for name in ("SLURM_PROCID", "SLURM_NTASKS", "RANK", "WORLD_SIZE"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert slurm.is_second_copy() == copy


def test_without_slurm_there_are_no_jobs_and_nothing_is_known(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", "")
    assert slurm.jobs_of(tmp_path) == {}
    assert slurm.is_running("17") is None


def test_paths_may_lie_where_an_environment_variable_says(monkeypatch):
    monkeypatch.setenv("SCRATCH", "/scratch/me")
    monkeypatch.setenv("HOME", "/home/me")
    paths = PathSettings(work="$SCRATCH/work", models="${SCRATCH}/models", datasets="~/sets")
    assert (paths.work, paths.models, paths.datasets) == ("/scratch/me/work", "/scratch/me/models", "/home/me/sets")
    monkeypatch.delenv("SCRATCH")
    with pytest.raises(ValueError, match="an environment variable in it is not set"):
        PathSettings(work="$SCRATCH/work")
