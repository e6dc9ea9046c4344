"""Every container gives the same rows, and says where a broken one breaks."""

import csv
import gzip
import io
import json
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from deltap.errors import DeltapError
from deltap.questions import json_stream
from deltap.questions.containers import file_rows
from deltap.questions.rows import BadRow

ROWS = [
    {"id": "1", "question": "Who wrote “Émile”?", "answer": "Jean-Jacques Rousseau"},
    {"id": "2", "question": 'Which "flag", is\tthis: 🇿🇦?', "answer": "South\nAfrica"},
    {"id": "3", "question": "a; b, c", "answer": ""},
]


def delimited(delimiter: str) -> Callable[[list[dict]], bytes]:
    def write(rows: list[dict]) -> bytes:
        stream = io.StringIO(newline="")
        writer = csv.DictWriter(stream, list(rows[0]), delimiter=delimiter)
        writer.writeheader()
        writer.writerows(rows)
        return stream.getvalue().encode()

    return write


def parquet(rows: list[dict]) -> bytes:
    stream = io.BytesIO()
    pq.write_table(pa.Table.from_pylist(rows), stream)
    return stream.getvalue()


def json_lines(rows: list[dict]) -> bytes:
    return "".join(json.dumps(row) + "\n" for row in rows).encode()


WRITERS: dict[str, Callable[[list[dict]], bytes]] = {
    "csv": delimited(","),
    "tsv": delimited("\t"),
    "txt": delimited(";"),
    "json": lambda rows: json.dumps(rows, ensure_ascii=False).encode(),
    "pretty.json": lambda rows: json.dumps(rows, indent=4).encode(),
    "data.json": lambda rows: json.dumps({"Domain": "Web", "Data": rows, "Version": 1.0}).encode(),
    "jsonl": json_lines,
    "lines.json": json_lines,
    "parquet": parquet,
}


@pytest.fixture
def write(tmp_path: Path) -> Callable[[str, bytes | str], Path]:
    def write(name: str, content: bytes | str) -> Path:
        path = tmp_path / name
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return path

    return write


def values(path: Path) -> list[Any]:
    return [row.value for row in file_rows(path)]


@pytest.mark.parametrize("kind", WRITERS)
@pytest.mark.parametrize("wrap", [bytes, gzip.compress], ids=["plain", "gzip"])
@pytest.mark.parametrize("named", [True, False], ids=["named", "unnamed"])
def test_the_content_says_which_container_a_file_is(write, kind: str, wrap: Callable, named: bool) -> None:
    name = f"questions.{kind}" if named else "questions"
    assert values(write(name, wrap(WRITERS[kind](ROWS)))) == ROWS


@pytest.mark.parametrize("kind", ["csv", "tsv", "json", "jsonl"])
def test_a_byte_order_mark_and_windows_line_ends_change_nothing(write, kind: str) -> None:
    rows = [{"question": "a?", "answer": "b"}, {"question": "c?", "answer": "d"}]
    content = WRITERS[kind](rows).replace(b"\r\n", b"\n").replace(b"\n", b"\r\n")
    assert values(write(f"q.{kind}", b"\xef\xbb\xbf" + content)) == rows


def test_places_count_lines_elements_and_rows_from_one(write) -> None:
    lines = write("q.jsonl", '\n{"a": 1}\n\n{"a": 2}\n')
    assert [row.place for row in file_rows(lines)] == [f"{lines}:2", f"{lines}:4"]
    table = write("q.csv", 'a,b\n1,"two\nlines"\n3,4\n')
    assert [row.place for row in file_rows(table)] == [f"{table}:2", f"{table}:4"]
    array = write("q.json", '[{"a": 1}, {"a": 2}]')
    assert [row.place for row in file_rows(array)] == [f"{array}, element 1", f"{array}, element 2"]
    columns = write("q.parquet", parquet([{"a": 1}, {"a": 2}]))
    assert [row.place for row in file_rows(columns)] == [f"{columns}, row 1", f"{columns}, row 2"]


def test_a_line_that_is_not_json_is_a_bad_row_between_good_ones(write) -> None:
    found = values(write("q.jsonl", '{"a": 1}\n{"a": \n{"a": 2}\n'))
    assert found[0] == {"a": 1}
    assert isinstance(found[1], BadRow)
    assert found[2] == {"a": 2}


def test_a_first_line_that_is_not_json_does_not_make_json_lines_a_csv(write) -> None:
    found = values(write("q.jsonl", 'broken\n{"a": 2}\n'))
    assert isinstance(found[0], BadRow)
    assert found[1] == {"a": 2}


def test_a_csv_row_with_too_few_cells_is_a_bad_row(write) -> None:
    path = write("q.csv", "a,b\n1,2\n3\n\n4,5\n")
    rows = list(file_rows(path))
    assert [row.place for row in rows] == [f"{path}:2", f"{path}:3", f"{path}:5"]
    assert str(rows[1].value) == "1 cells instead of 2"


def test_a_long_cell_is_read_whole(write) -> None:
    cell = "passage " * 50_000
    assert values(write("q.tsv", f"a\tb\n1\t{cell}\n")) == [{"a": "1", "b": cell}]


def test_bytes_that_are_not_utf8_break_only_their_row(write) -> None:
    for name, content in (("q.jsonl", b'{"a": "caf\xe9"}\n{"a": "b"}\n'), ("q.csv", b"a,b\ncaf\xe9,1\nb,2\n")):
        first, second = values(write(name, content))
        assert first["a"] == "caf\udce9"
        assert second["a"] == "b"


def test_an_array_without_elements_and_an_empty_file_have_no_rows(write) -> None:
    for name, content in (("q.json", "[ ]"), ("d.json", '{"Data": []}'), ("q.jsonl", ""), ("q.csv", "")):
        assert values(write(name, content)) == []


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("q.json", '[{"a": 1}, {"a": ', "element 2 is not JSON .*cut off"),
        ("q.json", '[{"a": 1}', "after element 1: expected ',' or ']', found the end of the file"),
        ("q.json", '[{"a": 1} {"a": 2}]', "after element 1: expected ',' or ']', found '{'"),
        ("q.json", '[{"a": 1}, ]', "element 2 is not JSON"),
        ("q.json", '[{"a": 1}] [{"a": 2}]', r"after element 1: the array ends, and then comes '\['"),
        ("q.json", '{"Version": 1, "Data": [{"a": 1}, x]}', "element 2 is not JSON"),
        ("q.csv", 'a,b\n1,2\n"3"x,4\n', r"q\.csv:3: not a CSV or TSV row"),
        (
            "q.csv",
            'a,b\n1,2\n"3,4\n5,6\n',
            r"q\.csv:3: not a CSV or TSV row \(unexpected end of data\); check its quotes",
        ),
        ("q.csv", "a,b,a\n1,2,3\n", r"q\.csv:1: the column 'a' stands there more than once"),
        ("q.xlsx", b"PK\x03\x04\x14\x00\x06\x00", "not a question file; expected Parquet, or JSON"),
        ("q.csv", "question,answer".encode("utf-16"), "not a question file; .* in UTF-8"),
        ("q.parquet", parquet(ROWS)[:-20], "cannot be read after row 0"),
        ("q.csv.gz", gzip.compress(b"a,b\n" * 9999, mtime=0)[:-20], "is the file whole"),
        ("q.csv.gz", b"\x1f\x8b" + b"x" * 20, "is the file whole"),
    ],
)
def test_a_broken_file_is_an_error_that_says_where(write, name: str, content: bytes | str, message: str) -> None:
    with pytest.raises(DeltapError, match=message):
        values(write(name, content))


def test_a_file_that_may_not_be_read_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(DeltapError, match="cannot be read"):
        values(tmp_path)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
)


@given(st.lists(json_values, max_size=6), st.integers(1, 9), st.sampled_from([None, 1]), st.booleans())
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_streaming_a_json_array_in_chunks_gives_what_json_gives(
    monkeypatch, elements: list, chunk: int, indent: int | None, wrapped: bool
) -> None:
    monkeypatch.setattr(json_stream, "_CHUNK", chunk)
    document = {"before": [1, {"Data": 2}], "Data": elements, "after": "x"} if wrapped else elements
    written = json.dumps(document, indent=indent)
    assert json_stream.is_document(io.StringIO(written))
    assert list(json_stream.elements(io.StringIO(written), "q.json")) == elements


@pytest.mark.parametrize(
    "written", ["", "{}", '{"question": "a"}\n{"question": "b"}', '{"Data": 1}', '{"Data" [', "{x}"]
)
def test_other_texts_are_not_documents(written: str) -> None:
    assert not json_stream.is_document(io.StringIO(written))


def test_a_large_array_is_not_held_in_memory_at_once(write) -> None:
    class Counting(io.StringIO):
        read_so_far = 0

        def read(self, size: int | None = -1) -> str:
            more = super().read(size)
            self.read_so_far += len(more)
            return more

    stream = Counting(json.dumps([{"text": "x" * 1000}] * 5000))
    next(json_stream.elements(stream, "q.json"))
    assert stream.read_so_far < 2_100_000


BOMBS = {
    "line.jsonl": (b'{"question": "', b"x", "line.jsonl:1: a row of more than 33,554,432 characters"),
    "line.csv": (b"question,answer\n", b"x", "line.csv:2: a row of more than 33,554,432 characters"),
    "head.csv": (b"", b"x", "head.csv:1: a row of more than 33,554,432 characters"),
    "field.csv": (b'question,answer\n"', b"x" * 9999 + b"\n", "field.csv:.*: a row of more than 33,554,432 characters"),
    "fields.csv": (
        b'question,answer\n"',
        b"x" * 9999 + b'\n","',
        "fields.csv:.*: a row of more than 33,554,432 characters",
    ),
    "value.json": (b'[{"question": "', b"x", "value.json: element 1 is not JSON .longer than 33,554,432 characters"),
}


@pytest.mark.parametrize("name", BOMBS)
def test_a_small_file_that_unpacks_to_endless_rows_is_refused_before_it_fills_the_memory(name: str, tmp_path) -> None:
    start, more, message = BOMBS[name]
    path = tmp_path / name
    with gzip.open(path, "wb", compresslevel=1) as stream:
        stream.write(start)
        for _ in range(300):
            stream.write(more * (1_000_000 // len(more)))
    assert path.stat().st_size < 3_000_000
    tracemalloc.start()
    try:
        with pytest.raises(DeltapError, match=message):
            values(path)
        assert tracemalloc.get_traced_memory()[1] < 200e6  # of 300 MB
    finally:
        tracemalloc.stop()


def test_gzipped_parquet_has_a_bound_for_it_is_held_as_a_whole(write: Callable, monkeypatch) -> None:
    path = write("small.parquet", gzip.compress(parquet(ROWS)))
    assert values(path) == ROWS
    monkeypatch.setattr("deltap.questions.containers._UNPACKED", 100)
    with pytest.raises(
        DeltapError, match=r"small\.parquet: Parquet of more than 100 bytes inside gzip; give it without"
    ):
        values(path)
