import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "workflow"))

import running


@pytest.fixture(scope="session")
def configfile(tmp_path_factory):
    """The configuration of a run of one tiny model on one question file; nothing has run."""
    whole = running.project(tmp_path_factory.mktemp("faults"))
    return running.changed(whole, models=["tiny-base"], datasets=["capitals"])
