"""A lock that only one process holds, on any machine that shares the file system, and that outlives no writer.

The lock is a file that names its owner: host, process and, on a cluster, Slurm job. File locks of the operating system
would be simpler, but many clusters' file systems have none that reach from node to node.
"""

import datetime
import errno
import getpass
import glob
import json
import logging
import os
import secrets
import socket
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path

import psutil

from deltap import slurm
from deltap.errors import DeltapError
from deltap.files import writing

logger = logging.getLogger("deltap")

_ASKING = 60  # seconds after which nobody asks for a lock with the same draft any more
_UNSEEN = 60  # seconds for which an owner is waited for of whom nobody can see whether it runs


@dataclass(frozen=True)
class Owner:
    """Who holds a lock."""

    host: str
    pid: int
    started: float
    """When the process started (seconds since 1970): a process id alone is used again."""
    slurm_job: str | None = None

    def __str__(self) -> str:
        job = f"Slurm job {self.slurm_job}, " if self.slurm_job else ""
        return f"{job}process {self.pid} on {self.host}"

    @staticmethod
    def this_process() -> "Owner":
        """Return the owner that this process is."""
        return Owner(socket.gethostname(), os.getpid(), psutil.Process().create_time(), slurm.job_id())

    def is_alive(self) -> bool | None:
        """Return whether the owner still runs; None if it cannot be known from here."""
        if self.host == socket.gethostname():
            with suppress(psutil.NoSuchProcess):
                process = psutil.Process(self.pid)
                return process.status() != psutil.STATUS_ZOMBIE and abs(process.create_time() - self.started) < 2
            return False
        if self.slurm_job is None:
            return None
        if self.slurm_job == slurm.job_id():
            return False  # this job, before Slurm started it again here
        return slurm.is_running(self.slurm_job)


@contextmanager
def locked(path: Path, what: str, patience: float = 60) -> Iterator[None]:
    """Hold the lock ``path`` on ``what``; a dead owner's lock is taken over.

    Waits ``patience`` seconds for an owner that is about to end, which the log says, then raises DeltapError that names
    it.
    """
    _prepare(path)
    text = json.dumps(asdict(Owner.this_process()))
    started = time.monotonic()
    told = False
    while not _create(path, text):
        with suppress(FileNotFoundError):  # released meanwhile
            found = path.read_text(encoding="utf-8")
            owner = _owner(path, found)
            alive = owner.is_alive()
            if alive is False:
                _remove(path, found)
            # Of an owner that cannot be seen nobody knows whether it will ever end.
            elif time.monotonic() - started >= (patience if alive else min(patience, _UNSEEN)):
                raise DeltapError(_busy(path, what, owner, alive))
            else:
                if not told:
                    logger.info("waiting for %s, which has the lock %s on %s", owner, path, what)
                told = True
                time.sleep(min(2, max(0.05, patience / 10)))
    try:
        yield
    finally:
        _remove(path, text)


@contextmanager
def claimed(paths: Iterable[Path]) -> Iterator[list[Path]]:
    """Hold those of the locks ``paths`` that nobody has, and yield them; nobody is waited for, dead owners included."""
    text = json.dumps(asdict(Owner.this_process()))
    mine: list[Path] = []
    try:
        for path in paths:
            _prepare(path)
            if _create(path, text):
                mine.append(path)
        yield mine
    finally:
        for path in mine:
            _remove(path, text)


def _prepare(path: Path) -> None:
    with writing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
    for draft in path.parent.glob(f".{glob.escape(path.name)}.*"):  # of a process that was killed while it asked
        with suppress(FileNotFoundError):
            if time.time() - draft.stat().st_mtime > _ASKING:
                draft.unlink()


def _create(path: Path, text: str) -> bool:
    """Write the lock, unless there is one; it appears with its content."""
    draft = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        with writing(path):
            draft.write_text(text, encoding="utf-8")
            return _link(draft, path)
    finally:
        draft.unlink(missing_ok=True)


def _link(draft: Path, path: Path) -> bool:
    try:
        os.link(draft, path)
        return True
    except FileExistsError:
        return False
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise
        raise DeltapError(
            f"{path}: cannot be locked ({error.strerror}); the file system needs hard links, so let paths.work lie on "
            "another one"
        ) from None


def _remove(path: Path, text: str) -> None:
    """Remove the lock if it still says ``text``."""
    aside = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        path.rename(aside)
    except FileNotFoundError:
        return
    if aside.read_text(encoding="utf-8") != text:  # taken over between reading and renaming
        with suppress(FileExistsError):
            os.link(aside, path)
    aside.unlink()


def _owner(path: Path, text: str) -> Owner:
    try:
        return Owner(**json.loads(text))
    except (ValueError, TypeError):
        raise DeltapError(f"{path}: not a lock of deltap; delete it if nothing writes there") from None


def _busy(path: Path, what: str, owner: Owner, alive: bool | None) -> str:
    if alive is None:
        ask = "Slurm does not answer" if owner.slurm_job else "it is another machine"
        return (
            f"{what} is locked by {owner}; whether that still runs cannot be seen from here ({ask}). "
            f"If it does not, delete {path} and start again"
        )
    stop = f"scancel {owner.slurm_job}" if owner.slurm_job else f"kill {owner.pid}"
    return (
        f"{what} is being computed by {owner} already (lock {path}). Wait for it, or stop it with '{stop}', and start "
        "again: what it finished is not computed again"
    )


# Snakemake locks its folder, but does not say who holds it.


def note_holder(folder: Path) -> None:
    """Note in Snakemake's ``folder`` that this process runs there."""
    note = {**asdict(Owner.this_process()), "user": getpass.getuser(), "since": _now()}
    with suppress(OSError):  # a note, nothing more
        (folder / _NOTE).write_text(json.dumps(note), encoding="utf-8")


def holder(folder: Path) -> str | None:
    """Return who holds Snakemake's lock of ``folder``, and what to do, in a sentence; None where nobody does."""
    locks = folder / "locks"
    if not locks.is_dir() or not any(locks.iterdir()):
        return None
    try:
        note = json.loads((folder / _NOTE).read_text(encoding="utf-8"))
        who, since = f"{note.pop('user')}'s", note.pop("since")
        owner = Owner(**note)
    except (OSError, ValueError, KeyError, TypeError):
        return None
    if owner.is_alive() is False:
        return (
            f"{who} snakemake, {owner}, held this folder since {since} and was killed: once with --unlock, then again"
        )
    return f"{who} snakemake, {owner}, works in this folder since {since}: wait for it, or stop it there"


_NOTE = "deltap-holder.json"


def _now() -> str:
    return datetime.datetime.now().astimezone().isoformat(" ", timespec="seconds")
