"""The rows that a figure shows: read, checked and selected from summary tables."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from deltap.errors import DeltapError, nearest
from deltap.settings import BootstrapSettings, FigureEntry
from deltap.tables import DELTA_P, SUMMARY, read_columns, read_metadata, read_table

# "model" and "dataset" → slug → label, in the order of display.
Labels = Mapping[str, Mapping[str, str]]


def read_summaries(paths: Sequence[str | Path], bootstrap: BootstrapSettings) -> pa.Table:
    """Return the rows of all tables, with the columns of `deltap.tables.SUMMARY`.

    A table of samples (`deltap.tables.DELTA_P`) is summarised first, with ``bootstrap``.

    Raises DeltapError that names the file and its wrong or missing columns.
    """
    return pa.concat_tables([_read_summary(path, bootstrap).select(SUMMARY.names).cast(SUMMARY) for path in paths])


def _read_summary(path: str | Path, bootstrap: BootstrapSettings) -> pa.Table:
    if "delta_p" not in read_columns(path):
        return read_table(path, SUMMARY)
    from deltap.delta_p import summarise  # a summary needs none of it

    return summarise(read_table(path, DELTA_P), bootstrap)


def read_labels(paths: Sequence[str | Path]) -> Labels:
    """Return the labels and the order of models and data sets from the tables' metadata.

    Tables are read in turn; a slug keeps its first place and label.
    """
    labels: dict[str, dict[str, str]] = {"model": {}, "dataset": {}}
    for path in paths:
        found = read_metadata(path).get("labels", {})
        for kind, known in labels.items():
            for slug, label in found.get(kind, []):
                known.setdefault(slug, label)
    return labels


def select(
    summary: pa.Table,
    entry: FigureEntry,
    models: Sequence[str] | None = None,
    datasets: Sequence[str] | None = None,
) -> pa.Table:
    """Return the rows of one figure: of one site, position, grouping and extractor.

    None means the only one there is; for models and data sets it means all.

    Raises DeltapError when the table lacks what is chosen, or has several where nothing is chosen.
    """
    for column, chosen in (("model", models), ("dataset", datasets)):
        if chosen is not None:
            summary = _keep(summary, column, chosen)
    for column, value in {
        "extractor": entry.extractor,
        "site": entry.site,
        "position": entry.position,
        "grouping": entry.grouping,
    }.items():
        found = _distinct(summary, column)
        if value is None and len(found) > 1:
            raise DeltapError(
                f"the table has several values of {column} ({', '.join(found)}): choose one with --{column}"
            )
        summary = _keep(summary, column, found if value is None else [value])
    return summary


def _keep(summary: pa.Table, column: str, values: Sequence[str]) -> pa.Table:
    found = _distinct(summary, column)
    for value in values:
        if value not in found:
            raise DeltapError(f"the table has no rows with {column} {value!r}{nearest(value, found)}")
    return summary.filter(pc.is_in(summary[column].cast(pa.string()), pa.array(values, pa.string())))


def _distinct(summary: pa.Table, column: str) -> list[str]:
    return summary[column].cast(pa.string()).unique().to_pylist()
