"""Nothing is lost, nothing computed twice and nothing left behind, whichever process of a run is killed when."""

import os
from collections import Counter

import pytest
import running
from killing import SNAKEMAKE, Killer, tables

SOAK = bool(os.environ.get("DELTAP_SOAK"))
KILLS, TIMES = (100, 2) if SOAK else (10, 1)
STAGES = {
    "questions", "inference", "labels", "probes", "anchors", "delta_p", "merge", "summarise", "samples", "extraction",
    "verdict", "plot",
}  # fmt: skip


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
    killer = Killer(folder, run, times=0, seed=0)
    killer.run()
    return tables(folder)


def test_a_run_whose_processes_are_killed_ends_with_the_same_bytes(run, undisturbed, tmp_path_factory):
    killed: Counter[str] = Counter()
    while killed.total() < KILLS:
        killer = Killer(tmp_path_factory.mktemp("killed"), run, TIMES, seed=killed.total())
        said = killer.run()
        killer.look()
        killed += killer.killed
        assert "Traceback" not in said
        assert tables(killer.folder) == undisturbed, killer.killed
        assert killer.left_behind() == []
        print(killed.total(), killed.most_common(), flush=True)
    assert killed[SNAKEMAKE]
    assert killed.keys() >= STAGES or not SOAK  # a short stage may get away once, not every time
