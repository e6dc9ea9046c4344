"""Files of rows: JSON, JSON lines, CSV, TSV and Parquet, each also gzipped.

Which one a file is, its content says; only ``.json``, ``.jsonl`` and ``.ndjson`` files are never taken for CSV.
"""

import csv
import gzip
import io
import json
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO, TextIO, cast

from deltap.errors import DeltapError
from deltap.questions import json_stream
from deltap.questions.json_stream import LONGEST
from deltap.questions.rows import BadRow, Row

_GZIP, _PARQUET = b"\x1f\x8b", b"PAR1"
_JSON_NAMES = (".json", ".jsonl", ".ndjson")
_PARQUET_ROWS = 1000  # held in memory at a time
_UNPACKED = 1 << 30  # bytes that gzipped Parquet may have, for it is held in memory as a whole


def file_rows(path: Path) -> Iterator[Row]:
    """Yield the rows of a file; their places count lines, elements of a JSON array or rows of a Parquet file from 1.

    A line that cannot be decoded is a row with a `BadRow`. Raises DeltapError where the file as a whole is broken.
    """
    try:
        with _open(path) as stream:
            head = stream.read(4096)
        if head.startswith(_PARQUET):
            yield from _parquet_rows(path)
        elif b"\0" in head:
            raise DeltapError(
                f"{path}: not a question file; expected Parquet, or JSON, JSON lines, CSV or TSV in UTF-8, or one of "
                "these gzipped"
            )
        elif _is_json(path, head):
            yield from _json_rows(path)
        else:
            yield from _delimited_rows(path)
    except (OSError, EOFError, zlib.error) as error:
        raise DeltapError(f"{path}: cannot be read ({error}); is the file whole?") from None


def _open(path: Path) -> BinaryIO:
    """Open a file for its content, decompressed."""
    with path.open("rb") as stream:
        compressed = stream.read(2) == _GZIP
    return cast(BinaryIO, gzip.open(path)) if compressed else path.open("rb")


def _text(path: Path, newline: str | None = None) -> io.TextIOWrapper:
    # Bytes that are not UTF-8 become lone surrogates; the row that holds one is a bad row like any other.
    return io.TextIOWrapper(_open(path), encoding="utf-8-sig", errors="surrogateescape", newline=newline)


def _is_json(path: Path, head: bytes) -> bool:
    name = path.name.lower().removesuffix(".gz")
    return name.endswith(_JSON_NAMES) or head.removeprefix(b"\xef\xbb\xbf").lstrip()[:1] in (b"{", b"[")


def _json_rows(path: Path) -> Iterator[Row]:
    with _text(path) as stream:
        document = json_stream.is_document(stream)
    with _text(path) as stream:
        if document:
            for number, element in enumerate(json_stream.elements(stream, str(path)), start=1):
                yield Row(f"{path}, element {number}", element)
        else:
            lines = _Lines(stream, path)
            for line in lines:
                if line.strip():
                    yield Row(f"{path}:{lines.number}", _decoded(line))
                lines.row_ends()


class _Lines:
    """The lines of a text, of which a row may not be longer than `LONGEST` (DeltapError)."""

    def __init__(self, stream: TextIO, path: Path) -> None:
        self.number = 0
        """Of the line that was read last, from 1."""
        self._stream, self._path = stream, path
        self._row = 0

    def __iter__(self) -> Iterator[str]:
        return self

    def __next__(self) -> str:
        line = self._stream.readline(LONGEST + 1)
        if not line:
            raise StopIteration
        self.number += 1
        self._row += len(line)
        if self._row > LONGEST:
            raise DeltapError(
                f"{self._path}:{self.number}: a row of more than {LONGEST:,} characters; shorten it, or see whether "
                "the file is what its name says"
            )
        return line

    def row_ends(self) -> None:
        """Begin to count anew."""
        self._row = 0


def _decoded(line: str) -> Any:
    try:
        return json.loads(line)
    except (ValueError, RecursionError) as error:
        return BadRow(f"not JSON ({error})")


def _delimited_rows(path: Path) -> Iterator[Row]:
    csv.field_size_limit(LONGEST)  # the default of 131,072 is too small for lists of passages
    with _text(path, newline="") as stream:
        first = next(_Lines(stream, path), "")
        stream.seek(0)
        lines = _Lines(stream, path)
        reader = csv.reader(lines, delimiter=max("\t,;", key=first.count), strict=True)
        line = 1
        try:
            columns = next(reader, [])
            twice = sorted({column for column in columns if columns.count(column) > 1})
            if twice:
                raise DeltapError(f"{path}:1: the column {twice[0]!r} stands there more than once")
            line = reader.line_num + 1
            lines.row_ends()
            for cells in reader:
                lines.row_ends()
                if len(cells) == len(columns):
                    yield Row(f"{path}:{line}", dict(zip(columns, cells, strict=True)))
                elif cells:
                    yield Row(f"{path}:{line}", BadRow(f"{len(cells)} cells instead of {len(columns)}"))
                line = reader.line_num + 1
        except csv.Error as error:
            raise DeltapError(f"{path}:{line}: not a CSV or TSV row ({error}); check its quotes") from None


def _parquet_rows(path: Path) -> Iterator[Row]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    number = 0
    try:
        with _open(path) as stream:
            # Parquet is read from its end, which gzip has to be decompressed for.
            source = pa.BufferReader(_unpacked(stream, path)) if isinstance(stream, gzip.GzipFile) else stream
            for batch in pq.ParquetFile(source).iter_batches(batch_size=_PARQUET_ROWS):
                for value in batch.to_pylist():
                    number += 1
                    yield Row(f"{path}, row {number}", value)
    except (pa.ArrowException, UnicodeDecodeError) as error:
        raise DeltapError(f"{path}: cannot be read after row {number} ({error}); is the file whole?") from None


def _unpacked(stream: BinaryIO, path: Path) -> bytes:
    content = stream.read(_UNPACKED + 1)
    if len(content) > _UNPACKED:
        raise DeltapError(f"{path}: Parquet of more than {_UNPACKED:,} bytes inside gzip; give it without gzip")
    return content
