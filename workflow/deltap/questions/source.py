"""Where the rows of a data set come from. Importing this is cheap."""

import difflib
from collections.abc import Iterator
from pathlib import Path

from deltap.errors import DeltapError
from deltap.manifest import FETCH
from deltap.questions.containers import file_rows
from deltap.questions.rows import Row
from deltap.settings import DatasetSource


def check_file(entry: DatasetSource, dataset: str) -> None:
    """Raise DeltapError where a file of the data set does not exist; name the nearest one of its folder."""
    for path in (entry.path, entry.ids_file):
        if path is not None:
            _check(Path(path), dataset)


def _check(path: Path, dataset: str) -> None:
    if path.is_file():
        return
    if path.is_dir():
        raise DeltapError(f"data set {dataset}: {path} is a folder; give one of its files")
    if not path.parent.is_dir():
        raise DeltapError(f"data set {dataset}: no file {path}, nor is there a folder {path.parent}")
    close = difflib.get_close_matches(path.name, [item.name for item in path.parent.iterdir()], n=1)
    hint = f"; did you mean '{close[0]}'?" if close else f"; nothing in {path.parent} has a similar name"
    raise DeltapError(f"data set {dataset}: no file {path}{hint}")


def source_rows(entry: DatasetSource, dataset: str) -> Iterator[Row]:
    """Return the rows of a data set from its file; one of the hub is read from its download (`questions.hub`)."""
    if entry.path is None:
        raise DeltapError(f"data set {dataset}: {entry.hub} is read from its download; {FETCH}, or give a 'path:'")
    check_file(entry, dataset)
    return file_rows(Path(entry.path))
