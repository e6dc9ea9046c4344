"""What the Slurm profile would ask for; no Slurm is needed to see it."""

import re
import subprocess
import sys
from importlib.util import find_spec

import pytest
from running import ROOT

pytestmark = pytest.mark.skipif(
    not find_spec("snakemake_executor_plugin_slurm"), reason="snakemake-executor-plugin-slurm is not installed"
)
PROFILE = ("--workflow-profile", str(ROOT / "config" / "profiles" / "slurm"))


@pytest.fixture(scope="module")
def paper(tmp_path_factory):
    """What a dry run of the paper's configuration prints."""
    done = subprocess.run(
        [sys.executable, "-m", "snakemake", "--snakefile", str(ROOT / "Snakefile"), *PROFILE, "-n"],
        cwd=tmp_path_factory.mktemp("paper"), capture_output=True, text=True, check=True,
    )  # fmt: skip
    return done.stdout + done.stderr


def test_a_dry_run_shows_what_each_job_of_the_papers_run_asks_for(paper):
    numbers = r"\[(\d+) GPUs\] \[(\d+) CPUs, (\d+) MB, (\d+) minutes\]"
    asked = re.findall(rf"Asking (\S+) the questions of (\S+) .*{numbers}", paper)
    assert {(model, dataset) for model, dataset, *_ in asked} == {
        (model, dataset) for model in ("qwen3-8b", "qwen3-32b") for dataset in ("popqa", "triviaqa", "hotpotqa", "nq")
    }  # fmt: skip
    for model, _, gpus, cpus, memory, minutes in asked:
        assert int(gpus) >= 1
        assert int(cpus) >= 4
        # Host memory for a part of the weights at least, and walltimes that partitions usually grant.
        assert int(memory) >= {"qwen3-8b": 16_000, "qwen3-32b": 64_000}[model]
        assert 60 <= int(minutes) <= 24 * 60
    # Small jobs of one series are one job, whose name says which.
    for model in ("qwen3-8b", "qwen3-32b"):
        assert f"Group job analysis.{model}.popqa.auto" in paper
    assert paper.count("Training the probes of") == 8


def test_downloads_run_where_snakemake_runs(paper):
    for rule in ("fetch_model", "fetch_dataset", "questions", "merge", "figure"):
        assert re.search(rf"^{rule}\w* ", paper, re.MULTILINE), rule
    assert not re.search(r"(Fetching|Downloading|Reading|Merging|Drawing).*MB", paper)
