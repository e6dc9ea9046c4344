import sys
from pathlib import Path

import pytest

for folder in (Path(__file__).parents[1] / "workflow", Path(__file__).parent):
    sys.path.insert(0, str(folder))

import heads
import running
import slurm


@pytest.fixture(scope="session")
def cluster(tmp_path_factory):
    """A Slurm of two nodes, without accounting."""
    if reason := slurm.missing():
        pytest.skip(reason)
    with slurm.running(tmp_path_factory.mktemp("slurm")) as cluster:
        yield cluster


@pytest.fixture(autouse=True)
def _no_job_is_left(request):
    yield
    if "cluster" in request.fixturenames:
        request.getfixturevalue("cluster").cancel_all()


@pytest.fixture(scope="session")
def configfile(tmp_path_factory):
    """The configuration of one tiny model, held by two ranks, on one question set, in many small chunks."""
    complete = running.project(tmp_path_factory.mktemp("project"))
    return running.changed(
        heads.with_model(complete, engine="accelerate", ranks=2),
        models=["tiny-base"],
        datasets=["rulers"],
        formats=["png"],
        inference={"sites": ["attn"], "positions": ["exact_answer_last"], "chunk_questions": heads.CHUNK},
    )


@pytest.fixture(scope="session")
def table(configfile, tmp_path_factory):
    """The bytes of the table that a run on this machine alone ends with."""
    folder = tmp_path_factory.mktemp("local")
    running.snakemake(folder, configfile, heads.TABLE)
    return (folder / heads.TABLE).read_bytes()
