"""The processes of one job that hold a model together: which one this is, and how they end together.

A job with several ranks is started by `deltap.launch`, which tells them by the environment. Without it there is one
rank. No torch here, because every script asks.
"""

import ctypes
import os
import signal
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from deltap.files import write_json

ERRORS = "DELTAP_ERRORS"
"""Environment variable: the folder in which a rank writes why it failed."""
LAUNCHER = "DELTAP_LAUNCHER"
"""Environment variable: process id of the launcher, without which no rank goes on."""

Action = Callable[[], None]
_at_end: list[Action] = []


class Followed(Exception):
    """This rank has computed what the first one asked for, to its end; nothing is left to do."""


_PR_SET_PDEATHSIG = 1  # prctl(2)


@dataclass(frozen=True)
class Ranks:
    """This process among the job's."""

    rank: int = 0
    number: int = 1
    local_number: int = 1
    """How many of them are on this node."""

    @property
    def first(self) -> bool:
        """Whether this is the rank that decides and writes."""
        return self.rank == 0


def here(environment: Mapping[str, str] = os.environ) -> Ranks:
    """Return which rank this process is."""
    if "RANK" not in environment or "WORLD_SIZE" not in environment:
        return Ranks()
    number = int(environment["WORLD_SIZE"])
    return Ranks(int(environment["RANK"]), number, int(environment.get("LOCAL_WORLD_SIZE", number)))


def end_with_launcher() -> None:
    """Let the system kill this process when its launcher dies, however that dies (Linux)."""
    if LAUNCHER in os.environ and sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != int(os.environ[LAUNCHER]):  # it died before
            os._exit(1)


def at_end(action: Action) -> None:
    """Let ``action`` happen when the job's work is done."""
    _at_end.append(action)


def end() -> None:
    """Do what is to happen at the end."""
    while _at_end:
        _at_end.pop()()


def report(message: str) -> bool:
    """Leave word of why this rank fails to the launcher, which tells the first rank's reason; False without one."""
    if ERRORS not in os.environ:
        return False
    write_json(Path(os.environ[ERRORS]) / f"{here().rank}.json", {"time": time.time(), "message": message})
    return True
