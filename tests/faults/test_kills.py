"""Nothing is lost, nothing computed twice and nothing left behind, whichever process of a run is killed when."""

import os
from collections import Counter

import pytest
import running
from killing import Killer, tables

SOAK = bool(os.environ.get("DELTAP_SOAK"))
KILLS, AT_ONCE = (100, 20) if SOAK else (10, 10)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """The configuration of a run of one model in one process and one in two ranks, in several chunks."""
    configfile = running.project(tmp_path_factory.mktemp("kills"))
    split = running.with_definition(configfile, "model", "tiny-chat", engine="accelerate", ranks=2)
    return running.changed(
        split,
        datasets=["capitals"],
        inference={"sites": ["attn"], "positions": ["exact_answer_last"], "chunk_questions": 16},
        bootstrap={"draws": 50},
        formats=["png"],
    )


@pytest.fixture(scope="module")
def undisturbed(run, tmp_path_factory):
    folder = tmp_path_factory.mktemp("undisturbed")
    killer = Killer(folder, run, kills=0, seed=0)
    killer.run()
    return tables(folder)


def test_a_run_whose_processes_are_killed_ends_with_the_same_bytes(run, undisturbed, tmp_path_factory):
    killed: list[str] = []
    while len(killed) < KILLS:
        killer = Killer(tmp_path_factory.mktemp("killed"), run, min(AT_ONCE, KILLS - len(killed)), seed=len(killed))
        said = killer.run()
        killer.look()
        killed += killer.killed
        print(*killer.killed, sep="\n")
        assert "Traceback" not in said
        assert tables(killer.folder) == undisturbed, killer.killed
        assert killer.left_behind() == []
    print(Counter(killed).most_common())
    assert "snakemake" in killed
