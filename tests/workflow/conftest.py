import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

import running


@pytest.fixture(scope="session")
def configfile(tmp_path_factory):
    """The configuration of a project with two tiny models and two question files; nothing has run."""
    return running.project(tmp_path_factory.mktemp("project"))


@pytest.fixture(scope="session")
def finished(configfile):
    """The folder of that project's results after a run."""
    folder = configfile.parent
    done = running.snakemake(folder, configfile)
    (folder / "output.txt").write_text(done.stdout)
    return folder / "results" / "mine"
