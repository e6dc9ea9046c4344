import shutil
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "workflow"))
sys.path.insert(0, str(Path(__file__).parent))

import heads
import running
import slurm
from filelock import FileLock


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
def local(tmp_path_factory, worker_id):
    """A project that has run on this machine alone; pytest's workers share it."""
    base = tmp_path_factory.getbasetemp()
    folder = (base if worker_id == "master" else base.parent) / "local"
    with FileLock(f"{folder}.lock"):
        if not (folder / heads.TABLE).exists():
            running.snakemake(folder, heads.configured(running.project(folder)), heads.TABLE)
    return folder


@pytest.fixture(scope="session")
def configfile(local, tmp_path_factory):
    """The project's configuration: one tiny model, held by two ranks, and one question set in many small chunks."""
    folder = tmp_path_factory.mktemp("project")
    for path in local.iterdir():
        if path.name in ("base", "chat"):
            shutil.copytree(path, folder / path.name)
        elif path.suffix == ".yaml":
            (folder / path.name).write_text(path.read_text().replace(str(local), str(folder)))
        elif path.is_file():
            shutil.copy(path, folder)
    return heads.configured(folder / "mine.yaml")


@pytest.fixture(scope="session")
def table(local):
    """The bytes of the table that the local run ended with."""
    return (local / heads.TABLE).read_bytes()
