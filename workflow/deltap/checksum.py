"""Files that know their own checksum, so that a damaged one is refused instead of read.

The CRC-32 of all bytes, with zeros in its own place, stands in the header of a safetensors file, which holds `BLANK`
when it is written, and before the footer of a Parquet file, where no reader looks. This finds every flipped byte, and
nothing that somebody changes on purpose.
"""

import re
import shlex
import struct
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from deltap.errors import DeltapError
from deltap.files import State, state

_MARK, _ZEROS = b"deltap-crc32:", b"00000000"
BLANK = (_MARK + _ZEROS).decode()
"""What the header of a safetensors file has to hold, once, when it is written."""
_SEAL = re.compile(re.escape(_MARK) + rb"([0-9a-f]{8})")
_BLOCK = 1 << 22
_PARQUET = b"PAR1"


def damaged(path: str | Path, why: object) -> DeltapError:
    """Return the error that says that a file of a run is not what was written, and how to make it again."""
    return DeltapError(
        f"{path}: damaged, or not written by this version of deltap ({' '.join(str(why).split())}); make it again: "
        f"rm {shlex.quote(str(path))}, then snakemake with the run's --configfile; what is whole is not computed again"
    )


def seal(path: Path, whole: bool = True) -> None:
    """Put the checksum of a file that is just written into it; with ``whole`` false, of its header only.

    That is for safetensors files whose data have checksums of their own.
    """
    with path.open("r+b") as file:
        frame = _frame(file)
        if frame.parquet:
            file.seek(frame.start)
            footer = file.read()
            file.seek(frame.start)
            file.write(BLANK.encode() + footer)
            frame = _frame(file)
        place = _place(file, frame)
        if place is None:
            raise ValueError(f"{path} holds no place for its checksum")
        found = _crc(file, place, None if whole else frame.end)
        file.seek(place)
        file.write(b"%08x" % found)


def check(path: str | Path, whole: bool = True) -> bool:
    """Raise DeltapError if a file is not what was sealed; return whether it has a seal at all.

    A table that somebody else wrote has none. A file that this process has checked already is not read again, unless it
    was written since.
    """
    path = Path(path)
    return _checked(path, whole, state(path))


@contextmanager
def opened(path: Path, framework: str, missing: str = "") -> Iterator[Any]:
    """Open a safetensors file that has a checksum, for ``framework`` (np, pt); raise DeltapError if it cannot be read.

    ``missing``: what to do where there is no such file.
    """
    from safetensors import SafetensorError, safe_open  # tables need it not

    try:
        if not check(path):
            raise ValueError("it has no checksum")
        with safe_open(path, framework) as file:
            yield file
    except FileNotFoundError:
        raise DeltapError(f"{path}: no such file{missing}") from None
    except (OSError, SafetensorError, ValueError, KeyError, TypeError) as error:
        raise damaged(path, error) from None


@lru_cache(maxsize=4096)
def _checked(path: Path, whole: bool, found: State) -> bool:
    with path.open("rb") as file:
        try:
            frame = _frame(file)
            place = _place(file, frame)
        except (struct.error, ValueError) as error:
            raise damaged(path, error) from None
        if place is None:
            return False
        file.seek(place)
        if file.read(len(_ZEROS)) != b"%08x" % _crc(file, place, None if whole else frame.end):
            raise damaged(path, "its checksum is another one")
    return True


class _Frame(NamedTuple):
    """The part of a file that describes the rest."""

    start: int
    end: int
    parquet: bool


def _frame(file: BinaryIO) -> _Frame:
    """Return where a Parquet file's footer is, or a safetensors file's header; ValueError where there is none."""
    size = file.seek(0, 2)
    file.seek(0)
    first = file.read(8)
    file.seek(max(0, size - 8))
    tail = file.read(8)
    if first[:4] == _PARQUET or tail[4:] == _PARQUET:
        (length,) = struct.unpack("<I", tail[:4])
        if first[:4] != tail[4:] or length + 12 > size:
            raise ValueError("it does not end as it begins: it was cut off")
        return _Frame(size - 8 - length, size, True)
    (length,) = struct.unpack("<Q", first)
    if length + 8 > size:
        raise ValueError("its header is longer than the file")
    return _Frame(0, 8 + length, False)


def _place(file: BinaryIO, frame: _Frame) -> int | None:
    """Return where the digits of the checksum stand, None where there are none; ValueError where they were there."""
    if frame.parquet:
        start = max(4, frame.start - len(BLANK))
        file.seek(start)
        found = file.read(len(_MARK))
        same = sum(a == b for a, b in zip(found, _MARK, strict=False))
        if len(_MARK) // 2 < same < len(_MARK):
            raise ValueError("its checksum cannot be read")
        return start + len(_MARK) if same == len(_MARK) else None
    file.seek(frame.start)
    match = _SEAL.search(file.read(frame.end - frame.start))
    return match.start(1) if match else None


def _crc(file: BinaryIO, place: int, end: int | None) -> int:
    """Return the checksum of a file up to ``end``, with zeros at ``place``."""
    size = file.seek(0, 2) if end is None else end
    file.seek(0)
    crc = at = 0
    while at < size:
        block = bytearray(file.read(min(_BLOCK, size - at)))
        if not block:
            break
        for index in range(max(place, at), min(place + len(_ZEROS), at + len(block))):
            block[index - at] = _ZEROS[0]
        crc = zlib.crc32(block, crc)
        at += len(block)
    return crc
