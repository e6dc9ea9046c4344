"""Files that appear under their final name only when they are whole."""

import errno
import glob
import hashlib
import json
import os
import re
import secrets
import socket
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

from deltap.errors import DeltapError

# Why a file cannot be written, and what helps.
_REMEDIES = {
    errno.ENOSPC: "make room",
    errno.EDQUOT: "make room in your quota",
    errno.EFBIG: "raise the limit on the size of files (ulimit -f)",
    errno.EROFS: "let the path lie on a file system that can be written",
    errno.EACCES: "get the permission, or give another path",
    errno.EPERM: "get the permission, or give another path",
    errno.EIO: "see whether the disk is broken",
}
_IN_WORDS = re.compile(r"(?:os error|errno) (\d+)")  # as libraries written in Rust and C++ say the number
_HERE = re.sub(r"[^A-Za-z0-9]", "", socket.gethostname()) or "host"
_DAY = 24 * 3600
_SMALL = 32 << 20  # bytes up to which a file is read as a whole to tell whether it is another one
_PLACES, _PIECE = 64, 4096  # of a larger one: pieces that are read, and bytes of each


@contextmanager
def writing(path: str | Path) -> Iterator[None]:
    """Say which file cannot be written, and the remedy, where the disk is full, read-only or not ours (DeltapError)."""
    try:
        yield
    except Exception as error:
        if remedy := unwritable(error):
            raise DeltapError(f"{path}: cannot be written: {remedy}, and start again; nothing is lost") from error
        raise


@contextmanager
def whole(path: str | Path) -> Iterator[Path]:
    """Yield a temporary path beside ``path``; on success flush it to disk and rename it into place.

    If the block raises, the temporary file is removed and ``path`` is left as it was. What killed writers of ``path``
    left behind is removed, too::

        with whole("table.csv") as temporary:
            temporary.write_text("a,b\\n")

    Raises DeltapError as `writing`.
    """
    path = Path(path)
    # The suffix stays last, because writers such as matplotlib choose their format by it.
    temporary = path.with_name(f".{path.stem}.{_HERE}-{os.getpid()}-{secrets.token_hex(4)}.tmp{path.suffix}")
    try:
        with writing(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            _remove_abandoned(path)
            yield temporary
            temporary.chmod(0o666 & ~_UMASK)  # some writers make files that only their owner may read
            _flush(temporary)
            temporary.replace(path)
            _flush(path.parent)
    finally:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)


def unwritable(error: Exception) -> str | None:
    """Return why a file cannot be written and what helps, such as ``No space left on device; make room``.

    None where ``error`` is something else.
    """
    number = error.errno if isinstance(error, OSError) else None
    if number is None and (said := _IN_WORDS.search(str(error))):
        number = int(said[1])
    return f"{os.strerror(number)}; {_REMEDIES[number]}" if number in _REMEDIES else None


def _remove_abandoned(path: Path) -> None:
    """Remove temporary files of writers of ``path`` that were killed: here, or a day ago on another machine."""
    suffix = f".tmp{path.suffix}"
    for left in path.parent.glob(f".{glob.escape(path.stem)}.*-*-*{glob.escape(suffix)}"):
        with suppress(OSError, ValueError):
            host, pid, _ = left.name.removesuffix(suffix).rsplit(".", 1)[1].rsplit("-", 2)
            gone = host == _HERE and not _runs(int(pid))
            if gone or time.time() - left.stat().st_mtime > _DAY:
                left.unlink()


def _runs(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass  # somebody else's
    return True


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


_UMASK = _umask()  # once, since asking for it changes it for a moment


def _flush(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_text(path: str | Path, text: str) -> None:
    """Write ``text`` (UTF-8) as a whole file."""
    with whole(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def write_json(path: str | Path, value: Any) -> None:
    """Write ``value`` as indented JSON, keys in their given order."""
    text = json.dumps(value, indent=2, ensure_ascii=False) + "\n"
    # Half of a surrogate pair, which UTF-8 does not know, is written as JSON writes it: \\ud800.
    write_text(path, text.encode("utf-8", "backslashreplace").decode("utf-8"))


def digest(value: Any) -> str:
    """Return 16 hexadecimal digits of the SHA-256 of ``value``'s canonical JSON (sorted keys)."""
    text = json.dumps(value, sort_keys=True, ensure_ascii=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def file_sha256(path: str | Path) -> str:
    """Return the SHA-256 of a file's bytes, as 64 hexadecimal digits."""
    with Path(path).open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


class State(NamedTuple):
    """What a file is as far as its directory tells; one that is written or replaced has another state."""

    size: int
    """Bytes."""
    modified: int
    """Nanoseconds."""
    inode: int


def state(path: Path) -> State:
    """Return the state of a file."""
    found = path.stat()
    return State(found.st_size, found.st_mtime_ns, found.st_ino)


@contextmanager
def unchanged(paths: Iterable[Path]) -> Iterator[None]:
    """Raise DeltapError that names the file if one of ``paths`` is written or replaced while the block runs."""
    before = {path: state(path) if path.exists() else None for path in paths}
    yield
    for path, was in before.items():
        if (state(path) if path.exists() else None) != was:
            raise DeltapError(f"{path}: changed while it was read; start again once it is whole")


def contents(paths: Iterable[Path]) -> str:
    """Return a digest of files by name and content; when they were written, and where they lie, makes no difference.

    Quick enough for every start: of a file above 32 MB only its size and pieces from all over it are read.
    """
    return digest([[path.name, _content(path, state(path))] for path in paths])


@lru_cache(maxsize=4096)
def _content(path: Path, found: State) -> str:
    if found.size <= _SMALL:
        return file_sha256(path)
    read = hashlib.sha256(str(found.size).encode())
    with path.open("rb") as stream:
        for place in range(_PLACES):
            stream.seek(place * (found.size - _PIECE) // (_PLACES - 1))
            read.update(stream.read(_PIECE))
    return read.hexdigest()
