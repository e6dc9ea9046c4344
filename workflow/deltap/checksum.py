"""Files that know their own checksum, so that a damaged one is refused instead of read.

A file's frame (Parquet's footer, safetensors' header) holds `BLANK` when it is written. `seal` then puts the CRC-32 of
all bytes there, computed with the blank in its place; `check` computes it again. This finds every flipped byte, and
nothing that somebody changes on purpose.
"""

import re
import shlex
import struct
import zlib
from functools import lru_cache
from pathlib import Path
from typing import BinaryIO

from deltap.errors import DeltapError

_MARK, _ZEROS = b"deltap-crc32:", b"00000000"
BLANK = (_MARK + _ZEROS).decode()
"""What a file's frame has to hold, once, when it is written."""
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
    """Put the checksum of a file that is just written into it; with ``whole`` false, of its frame only.

    That is for safetensors files, whose data have checksums of their own.
    """
    with path.open("r+b") as file:
        start, end = _frame(file)
        place = _place(file, start, end)
        if place is None:
            raise ValueError(f"{path} holds no place for its checksum")
        found = _crc(file, place, None if whole else end)
        file.seek(place)
        file.write(b"%08x" % found)


def check(path: str | Path, whole: bool = True) -> bool:
    """Raise DeltapError if a file is not what was sealed; return whether it has a seal at all.

    A file that this process has checked already is not read again, unless it was written since.
    """
    path = Path(path)
    state = path.stat()
    return _checked(path, whole, (state.st_size, state.st_mtime_ns, state.st_ino))


@lru_cache(maxsize=4096)
def _checked(path: Path, whole: bool, state: tuple[int, int, int]) -> bool:
    with path.open("rb") as file:
        try:
            start, end = _frame(file)
        except (struct.error, ValueError) as error:
            raise damaged(path, error) from None
        place = _place(file, start, end)
        if place is None:
            return False
        file.seek(place)
        if int(file.read(len(_ZEROS)), 16) != _crc(file, place, None if whole else end):
            raise damaged(path, "its checksum is another one")
    return True


def _frame(file: BinaryIO) -> tuple[int, int]:
    """Return where the part of a file begins and ends that describes the rest; ValueError where there is none."""
    size = file.seek(0, 2)
    file.seek(max(0, size - 8))
    tail = file.read(8)
    if tail[4:] == _PARQUET:
        (length,) = struct.unpack("<I", tail[:4])
        if length + 12 > size:
            raise ValueError("its footer is longer than the file")
        return size - 8 - length, size
    file.seek(0)
    (length,) = struct.unpack("<Q", file.read(8))
    if length + 8 > size:
        raise ValueError("its header is longer than the file")
    return 0, 8 + length


def _place(file: BinaryIO, start: int, end: int) -> int | None:
    """Return where in a frame the digits of the checksum stand."""
    file.seek(start)
    found = list(_SEAL.finditer(file.read(end - start)))
    return start + found[-1].start(1) if found else None


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
