"""Starting the ranks of a job: as many processes as its model is split into, which end together.

The ranks are started by torchrun or, for the engine ``accelerate`` on GPUs, by accelerate's launcher, which calls
torchrun too. What is added here: one message about the rank that failed first instead of a page about all of them, and
no rank outlives its launcher. The ranks find each other at a port that is free on this node, so that jobs can share it.
On several nodes, srun starts this launcher once on each, and the first node of Slurm's list is where they meet.
"""

import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from deltap import ranks, slurm


class RankFailed(Exception):
    """A rank failed, so that all have been ended; the text is the first one's reason."""


PORT = "DELTAP_PORT"
"""Environment variable: where the nodes' launchers meet on the first node."""


@dataclass(frozen=True)
class Node:
    """A node among those of a job."""

    index: int = 0
    number: int = 1
    address: str = ""
    """Of the first node, and the port there; not needed on one node."""
    port: int = 0


def launch(
    command: Sequence[str],
    number: int,
    threads: int,
    engine: str,
    device: str,
    nodes: int = 1,
    shared: Path | None = None,
) -> None:
    """Run a Python script with its arguments (``command``) in ``number`` processes with ``threads`` threads each.

    One process takes the place of this one, so that the call does not return. Of several, the first one's output is
    this one's. They are dealt out to ``nodes`` of the Slurm job, which need a folder that all of them see (``shared``).
    Raises RankFailed with the reason of the rank that failed first; by then no rank runs any more.
    """
    if nodes > 1 and PORT not in os.environ:
        _on_nodes(nodes, number, threads, shared or Path())
        return
    os.environ["OMP_NUM_THREADS"] = str(threads)
    if number == 1:
        sys.stdout.flush()
        os.execv(sys.executable, [sys.executable, *command])
    if device == "cpu":
        os.environ["CUDA_VISIBLE_DEVICES"] = ""  # transformers' plan takes an accelerator that it sees
    os.environ[ranks.LAUNCHER] = str(os.getpid())
    if nodes > 1:
        node = Node(int(os.environ["SLURM_NODEID"]), nodes, slurm.first_node(), int(os.environ[PORT]))
        _one_of_several(command, number, engine, Path(os.environ[ranks.ERRORS]), node)
        return
    with tempfile.TemporaryDirectory(prefix="deltap-ranks-") as folder:
        os.environ[ranks.ERRORS] = folder
        if codes := _start(command, number, engine, Path(folder)):
            raise RankFailed(_first(codes, number, Path(folder)))


def _on_nodes(nodes: int, number: int, threads: int, shared: Path) -> None:
    """Run this command on each node of the Slurm job."""
    shared.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".ranks-", dir=shared.resolve()) as folder, socket.socket() as probe:
        probe.bind(("", 0))
        os.environ |= {ranks.ERRORS: folder, PORT: str(probe.getsockname()[1])}
        probe.close()
        cpus = threads * number // nodes
        step = [f"--nodes={nodes}", f"--ntasks={nodes}", "--ntasks-per-node=1", f"--cpus-per-task={cpus}"]
        step += ["--overlap", "--mpi=none", "--kill-on-bad-exit=1", "--quiet"]
        done = subprocess.run(["srun", *step, sys.executable, *sys.argv])
        if done.returncode:
            codes = [json.loads(path.read_text("utf-8")) for path in Path(folder).glob("*.codes")]
            all_codes = {int(rank): code for part in codes for rank, code in part.items()}
            raise RankFailed(_first(all_codes or {0: done.returncode}, number, Path(folder), nodes))


def _one_of_several(command: Sequence[str], number: int, engine: str, folder: Path, node: Node) -> None:
    """Run this node's ranks; leave it to the launcher of all nodes to say why they failed."""
    try:
        codes = _start(command, number, engine, folder, node)
    except RankFailed:  # ended by srun, because another node's failed
        raise SystemExit(1) from None
    if codes:
        (folder / f"{node.index}.codes").write_text(json.dumps(codes), encoding="utf-8")
        raise SystemExit(1)


def _start(command: Sequence[str], number: int, engine: str, folder: Path, node: Node = Node()) -> dict[int, int]:
    """Run the ranks of a node to their end; return the exit codes of those that failed."""
    import logging

    import torch
    from torch.distributed.elastic.multiprocessing import SignalException
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
    from torch.distributed.run import parse_args, run

    # Their account of a failure would stand above ours, or say nothing of use.
    for name in ("torch.distributed.elastic", "torch.distributed.run"):
        logging.getLogger(name).setLevel(logging.CRITICAL)
    arguments = parse_args([command[0]])
    if engine == "accelerate" and torch.cuda.is_available():
        arguments, run = _accelerate(command[0], number, node)
    # By name, because the command's own options would be read as abbreviations of torchrun's.
    vars(arguments).update(
        training_script_args=list(command[1:]),
        nproc_per_node=str(number // node.number),
        standalone=node.number == 1,
        max_restarts=0,
        log_dir=str(folder / str(node.index)),
        # stdout and stderr of all but the first, to files in log_dir
        redirects=",".join(f"{rank}:3" for rank in range(0 if node.index else 1, number // node.number)) or "0",
    )
    if node.number > 1:
        meeting = {"nnodes": str(node.number), "node_rank": node.index, "rdzv_backend": "static"}
        vars(arguments).update(meeting, master_addr=node.address, master_port=node.port)
    try:
        run(arguments)
        return {}
    except ChildFailedError as error:
        return {rank: failure.exitcode for rank, failure in error.failures.items()}
    except SignalException as error:
        raise RankFailed(f"stopped by {error.sigval.name}; all ranks have ended") from None


def _accelerate(script: str, number: int, node: Node) -> tuple[Any, Callable[[Any], None]]:
    """Return the arguments of accelerate's launcher and itself; what it has no option for it hands to torchrun."""
    from accelerate.commands.launch import launch_command, launch_command_parser

    options = ["--multi_gpu", "--num_processes", str(number), "--num_machines", str(node.number)]
    options += ["--main_process_port", str(node.port), "--machine_rank", str(node.index)]
    if node.number > 1:
        options += ["--main_process_ip", node.address, "--rdzv_backend", "static"]
    options += ["--mixed_precision", "no", "--dynamo_backend", "no"]
    return launch_command_parser().parse_args([*options, script]), launch_command


def _first(codes: dict[int, int], number: int, folder: Path, nodes: int = 1) -> str:
    """Return why the first rank failed; ``codes``: exit codes of ranks that had ended when the failure was noticed.

    A rank that was killed left no word, and those that waited for it then complain of a closed connection, so a kill
    comes before every reason that was left.
    """
    codes = {rank: code for rank, code in codes.items() if code != -signal.SIGTERM} or codes  # by which the rest ends
    killed = {rank: code for rank, code in codes.items() if code < 0 and code != -signal.SIGTERM}
    said = [json.loads(path.read_text("utf-8")) for path in folder.glob("*.json")]
    if killed:
        rank, code = min(killed.items())
        name = signal.Signals(-code).name
        reason = f"killed by {name}{_KILLS.get(name, '')}{_last_words(folder, rank, number // nodes)}"
    elif said:
        return min(said, key=lambda word: word["time"])["message"]
    else:
        rank, code = min(codes.items())
        reason = f"ended with status {code}{_last_words(folder, rank, number // nodes)}"
    return f"rank {rank} of {number}: {reason}"


_KILLS = {"SIGKILL": " (as the system does when host memory runs out: then raise memory_mb)", "SIGSEGV": " (a crash)"}


def _last_words(folder: Path, rank: int, per_node: int, lines: int = 20) -> str:
    """Return the last lines that a rank wrote to standard error; the first rank's stand on this process's already."""
    node, local = divmod(rank, per_node)
    files = folder.glob(f"{node}/*/attempt_0/{local}/stderr.log")
    texts = [path.read_text("utf-8", errors="replace") for path in files]
    words = "\n".join(line for text in texts for line in text.splitlines()[-lines:])
    return f"; it wrote last:\n{words}" if words else ""
