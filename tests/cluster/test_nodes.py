"""The ranks of one job on two nodes."""

import sys
import time

import heads
import pytest
import running
from heads import run, side_file, with_model
from slurm import until

NAMES = ("answers.parquet", *(f"{name}.attn.exact_answer_last.safetensors" for name in ("clean", "knockout")))
FILES = [f"results/mine/inference/{heads.SERIES}/0/{name}" for name in NAMES]


@pytest.mark.parametrize("engine", ["accelerate", "deepspeed"])
def test_ranks_on_two_nodes_give_the_bytes_of_ranks_on_one(cluster, configfile, tmp_path, engine):
    one = with_model(configfile, engine=engine)
    two = with_model(one, nodes=2, partition="pair")
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
    running.snakemake(tmp_path / "one", one, *FILES)
    run(cluster, tmp_path / "two", two, *FILES)
    for name in FILES:
        assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "two" / name).read_bytes(), name
    facts = side_file(tmp_path / "two")
    assert (facts["SLURM_NNODES"], facts["WORLD_SIZE"], facts["LOCAL_WORLD_SIZE"]) == ("2", "2", "1")
    assert side_file(tmp_path / "one")["LOCAL_WORLD_SIZE"] == "2"


FAILING = """
import os, signal, sys, time
print(os.environ["SLURMD_NODENAME"], os.environ["RANK"], os.environ["CUDA_VISIBLE_DEVICES"], file=sys.stderr)
open(f"rank-{os.environ['RANK']}", "w").write(str(os.getpid()))
import torch.distributed
torch.distributed.init_process_group("gloo")
torch.distributed.barrier()
if os.environ["RANK"] == "3":
    os.kill(os.getpid(), signal.SIGKILL)
time.sleep(600)
"""


def test_a_rank_that_is_killed_on_one_node_ends_all_and_is_named(cluster, tmp_path):
    (tmp_path / "script.py").write_text(FAILING)
    launch = f"{sys.executable} {running.ROOT}/scripts/launch.py --ranks 4 --nodes 2 --log log.txt -- script.py"
    job = cluster(
        "sbatch", "--parsable", "--partition=pair", "--nodes=2", "--ntasks=2", "--cpus-per-task=2", "--gres=gpu:2",
        f"--chdir={tmp_path}", "--output=%j.txt", f"--export=ALL,PYTHONPATH={running.ROOT}/workflow",
        f"--wrap={launch}",
    ).strip()  # fmt: skip
    until(lambda: not cluster.jobs("PENDING,RUNNING,COMPLETING"), "the end", 60)
    output = (tmp_path / f"{job}.txt").read_text()
    assert "error: rank 3 of 4: killed by SIGKILL" in (tmp_path / "log.txt").read_text(), output
    assert "n2 3 0,1" in (tmp_path / "log.txt").read_text()  # what it wrote last: its node, and the node's devices
    assert cluster("scontrol", "show", "job", job).count("JobState=FAILED") == 1
    pids = [int((tmp_path / f"rank-{rank}").read_text()) for rank in range(4)]
    time.sleep(1)
    assert not [pid for pid in pids if heads.runs(pid)]
    assert not list(tmp_path.glob(".ranks-*"))
