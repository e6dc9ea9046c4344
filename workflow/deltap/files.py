"""Files that appear under their final name only when they are whole."""

import hashlib
import json
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any


@contextmanager
def whole(path: str | Path) -> Iterator[Path]:
    """Yield a temporary path beside ``path``; on success flush it to disk and rename it into place.

    If the block raises, the temporary file is removed and ``path`` is left as it was::

        with whole("table.csv") as temporary:
            temporary.write_text("a,b\\n")
    """
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    # The suffix stays last, because writers such as matplotlib choose their format by it.
    temporary = path.with_name(f".{path.stem}.{secrets.token_hex(4)}.tmp{path.suffix}")
    try:
        yield temporary
        temporary.chmod(0o666 & ~_UMASK)  # some writers make files that only their owner may read
        _flush(temporary)
        temporary.replace(path)
        _flush(path.parent)
    finally:
        temporary.unlink(missing_ok=True)


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
