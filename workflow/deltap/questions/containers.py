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
from typing import Any, BinaryIO, cast

from deltap.errors import DeltapError
from deltap.questions import json_stream
from deltap.questions.rows import BadRow, Row

_GZIP, _PARQUET = b"\x1f\x8b", b"PAR1"
_JSON_NAMES = (".json", ".jsonl", ".ndjson")
_PARQUET_ROWS = 1000  # held in memory at a time


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
            for number, line in enumerate(stream, start=1):
                if line.strip():
                    yield Row(f"{path}:{number}", _decoded(line))


def _decoded(line: str) -> Any:
    try:
        return json.loads(line)
    except (ValueError, RecursionError) as error:
        return BadRow(f"not JSON ({error})")


def _delimited_rows(path: Path) -> Iterator[Row]:
    csv.field_size_limit(1 << 27)  # characters; the default of 131,072 is too small for lists of passages
    with _text(path, newline="") as stream:
        first = stream.readline()
        stream.seek(0)
        reader = csv.reader(stream, delimiter=max("\t,;", key=first.count), strict=True)
        line = 1
        try:
            columns = next(reader, [])
            twice = sorted({column for column in columns if columns.count(column) > 1})
            if twice:
                raise DeltapError(f"{path}:1: the column {twice[0]!r} stands there more than once")
            line = reader.line_num + 1
            for cells in reader:
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
            source = pa.BufferReader(stream.read()) if isinstance(stream, gzip.GzipFile) else stream
            for batch in pq.ParquetFile(source).iter_batches(batch_size=_PARQUET_ROWS):
                for value in batch.to_pylist():
                    number += 1
                    yield Row(f"{path}, row {number}", value)
    except (pa.ArrowException, UnicodeDecodeError) as error:
        raise DeltapError(f"{path}: cannot be read after row {number} ({error}); is the file whole?") from None
