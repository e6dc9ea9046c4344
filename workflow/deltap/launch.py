"""Starting the ranks of a job: as many processes as its model is split into, which end together.

The ranks are started by torchrun or, for the engine ``accelerate`` on GPUs, by accelerate's launcher, which calls
torchrun too. What is added here: one message about the rank that failed first instead of a page about all of them, and
no rank outlives its launcher. The ranks find each other at a port that is free on this node, so that jobs can share it.
"""

import json
import os
import signal
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from deltap import ranks


class RankFailed(Exception):
    """A rank failed, so that all have been ended; the text is the first one's reason."""


def launch(command: Sequence[str], number: int, threads: int, engine: str, device: str) -> None:
    """Run a Python script with its arguments (``command``) in ``number`` processes with ``threads`` threads each.

    One process takes the place of this one, so that the call does not return. Of several, the first one's output is
    this one's. Raises RankFailed with the reason of the rank that failed first; by then no rank runs any more.
    """
    os.environ["OMP_NUM_THREADS"] = str(threads)
    if number == 1:
        sys.stdout.flush()
        os.execv(sys.executable, [sys.executable, *command])
    if device == "cpu":
        os.environ["CUDA_VISIBLE_DEVICES"] = ""  # transformers' plan takes an accelerator that it sees
    with tempfile.TemporaryDirectory(prefix="deltap-ranks-") as folder:
        os.environ |= {ranks.ERRORS: folder, ranks.LAUNCHER: str(os.getpid())}
        _start(command, number, engine, Path(folder))


def _start(command: Sequence[str], number: int, engine: str, folder: Path) -> None:
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
        arguments, run = _accelerate(command[0], number)
    # By name, because the command's own options would be read as abbreviations of torchrun's.
    vars(arguments).update(
        training_script_args=list(command[1:]),
        nproc_per_node=str(number),
        standalone=True,
        max_restarts=0,
        log_dir=str(folder),
        redirects=",".join(f"{rank}:3" for rank in range(1, number)),  # stdout and stderr, to files in log_dir
    )
    try:
        run(arguments)
    except ChildFailedError as error:
        codes = {rank: failure.exitcode for rank, failure in error.failures.items()}
        raise RankFailed(_first(codes, number, folder)) from None
    except SignalException as error:
        raise RankFailed(f"stopped by {error.sigval.name}; all ranks have ended") from None


def _accelerate(script: str, number: int) -> tuple[Any, Callable[[Any], None]]:
    """Return the arguments of accelerate's launcher and itself; what it has no option for it hands to torchrun."""
    from accelerate.commands.launch import launch_command, launch_command_parser

    options = ["--multi_gpu", "--num_processes", str(number), "--num_machines", "1", "--main_process_port", "0"]
    options += ["--mixed_precision", "no", "--dynamo_backend", "no"]
    return launch_command_parser().parse_args([*options, script]), launch_command


def _first(codes: dict[int, int], number: int, folder: Path) -> str:
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
        reason = f"killed by {name}{_KILLS.get(name, '')}{_last_words(folder, rank)}"
    elif said:
        return min(said, key=lambda word: word["time"])["message"]
    else:
        rank, code = min(codes.items())
        reason = f"ended with status {code}{_last_words(folder, rank)}"
    return f"rank {rank} of {number}: {reason}"


_KILLS = {"SIGKILL": " (as the system does when host memory runs out: then raise memory_mb)", "SIGSEGV": " (a crash)"}


def _last_words(folder: Path, rank: int, lines: int = 20) -> str:
    """Return the last lines that a rank wrote to standard error; the first rank's stand on this process's already."""
    texts = [path.read_text("utf-8", errors="replace") for path in folder.glob(f"*/attempt_0/{rank}/stderr.log")]
    words = "\n".join(line for text in texts for line in text.splitlines()[-lines:])
    return f"; it wrote last:\n{words}" if words else ""
