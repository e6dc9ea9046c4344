"""The rows that a figure shows: found, checked and selected from one or several tables."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from deltap.errors import DeltapError, nearest
from deltap.figures.variants import find_table, table_names
from deltap.settings import FigureEntry, TableSource
from deltap.tables import (
    ANCHORS,
    CONTROLS,
    DELTA_P,
    LABELS,
    PROBES,
    SAMPLES,
    SUMMARY,
    check_schema,
    iterate_table,
    read_columns,
    read_metadata,
    write_batches,
)

# "model" and "dataset" → slug → label, in the order of display.
Labels = Mapping[str, Mapping[str, str]]

_SAMPLES = pa.schema([SAMPLES.field(name) for name in ("model", "dataset", "extractor", "label", "exclusion")])
# What a figure may be drawn from: the table's schema, or what is needed of it, and the columns by which it is known.
_SCHEMAS: dict[str, tuple[pa.Schema, set[str]]] = {
    "delta_p_summary": (SUMMARY, {"mean", "ci_low", "ci_high"}),
    "delta_p": (DELTA_P, {"delta_p", "anchor"}),
    "anchors": (ANCHORS, {"flips", "k_star"}),
    "probes": (PROBES, {"auroc"}),
    "samples": (_SAMPLES, {"exclusion"}),
    "controls": (CONTROLS, {"control", "statistic"}),
    "answers": (pa.schema([LABELS.field(name) for name in _SAMPLES.names]), {"exclusion"}),
}


class Part(NamedTuple):
    """The selected rows of one table."""

    path: Path
    name: str
    """Which table of a run it is, such as ``anchors``."""
    rows: pa.Table
    source: TableSource


def merged(paths: Sequence[Path], folder: Path) -> dict[Path, int]:
    """Write the parts of a run's tables as one file each in ``folder``; return these with how many parts they have."""
    groups: dict[str, list[Path]] = {}
    for path in paths:
        columns = set(read_columns(path))
        name = next((name for name, (_, marks) in _SCHEMAS.items() if marks <= columns), None)
        if name:
            groups.setdefault(name, []).append(path)
    files = {}
    for name, parts in groups.items():
        schema = _SCHEMAS[name][0]
        files[folder / f"{name}.parquet"] = len(parts)
        tables = (table for path in parts for table in iterate_table(path, schema, schema.names))
        write_batches(folder / f"{name}.parquet", tables, schema, {})
    return files


def suitable(paths: Sequence[str | Path], entry: FigureEntry) -> list[Path]:
    """Return those of some tables, or of the tables in folders of results, that a figure is best drawn from."""
    found = [find_table(path, entry) for path in paths]
    names = [_name(path, entry) for path in found]
    for best in table_names(entry):
        if best in names:
            return [path for path, name in zip(found, names, strict=True) if name == best]
    return []


def read(sources: Sequence[TableSource], entry: FigureEntry) -> list[Part]:
    """Return the rows that ``entry`` selects, of each table.

    Of extractor, site, position and grouping, null means the only one there is; of models and data sets it means
    all. Raises DeltapError when a table lacks a column, or has one of another type, by its name; when the tables lack
    what is chosen; or when they have several where nothing is chosen.
    """
    parts = []
    models: dict[str, dict[str, None]] = {"model": {}, "dataset": {}}
    for source in sources:
        path = find_table(source.path, entry)
        name = _which(path, entry)
        chosen = {
            column: values for column, values in _chosen(entry, source).items() if column in _SCHEMAS[name][0].names
        }
        rows, found = _select(path, _SCHEMAS[name][0], chosen)
        for column, known in models.items():  # a table need not have all of them
            known.update(found.pop(column))
        if entry.extractor == "all" and not source.extractor:
            del chosen["extractor"]
        _check({column: chosen[column] for column in chosen if column not in models}, found, str(path))
        parts.append(Part(path, name, rows, source))
    _check({"model": entry.models, "dataset": entry.datasets}, models, "the tables")
    return parts


def _which(path: Path, entry: FigureEntry) -> str:
    """Return which of the tables that suit the figure this one is."""
    name = _name(path, entry) or table_names(entry)[0]
    check_schema(path, _SCHEMAS[name][0])
    return name


def _name(path: Path, entry: FigureEntry) -> str | None:
    columns = set(read_columns(path))
    return next((name for name in table_names(entry) if _SCHEMAS[name][1] <= columns), None)


def _select(
    path: Path, schema: pa.Schema, chosen: Mapping[str, Sequence[str] | None]
) -> tuple[pa.Table, dict[str, dict[str, None]]]:
    """Return the chosen rows of one table, and the values that the columns of ``chosen`` have in all of it."""
    found: dict[str, dict[str, None]] = {column: {} for column in chosen}
    parts = [schema.empty_table()]
    for batch in iterate_table(path, schema, schema.names):
        for column, there in found.items():
            there.update(dict.fromkeys(batch[column].unique().to_pylist()))
        for column, values in chosen.items():
            if values is not None:
                batch = batch.filter(pc.is_in(batch[column].cast(pa.string()), pa.array(values, pa.string())))
        parts.append(batch.select(schema.names).cast(schema))
    return pa.concat_tables(parts), found


def _chosen(entry: FigureEntry, source: TableSource) -> dict[str, Sequence[str] | None]:
    """Return column → values that are wanted, or None for whatever there is."""
    extractor = source.extractor or (None if entry.extractor == "all" else entry.extractor)
    keys = ["site", "position", "split", "intervention", "estimate", "statistic"]
    if entry.kind != "controls":  # which knows better which of its rows have a grouping
        keys.append("grouping")
    single = {key: getattr(entry, key, None) for key in keys}
    return {
        "model": entry.models,
        "dataset": entry.datasets,
        **{key: None if value is None else [value] for key, value in {"extractor": extractor, **single}.items()},
    }


def _check(chosen: Mapping[str, Sequence[str] | None], found: Mapping[str, Mapping[str, None]], where: str) -> None:
    """Raise DeltapError unless every chosen value occurs, and of what nobody chose (but models, data sets) one does."""
    if chosen and not any(found.values()):
        raise DeltapError(f"{where}: there are no rows: no probes could be trained; samples.md says why")
    for column, values in chosen.items():
        there = found.get(column, {})
        for value in values or ():
            if value not in there:
                raise DeltapError(f"{where}: no rows with {column} {value!r}{nearest(value, there)}")
        if values is None and column not in ("model", "dataset") and len(there) > 1:
            raise DeltapError(
                f"{where}: several values of {column} ({', '.join(there)}): choose one with '{column}' in the figure's "
                f"entry, or --{column}"
            )


def read_labels(paths: Sequence[str | Path]) -> dict[str, dict[str, str]]:
    """Return the labels and the order of models and data sets from the tables' metadata.

    Tables are read in turn; a slug keeps its first place and label.
    """
    labels: dict[str, dict[str, str]] = {"model": {}, "dataset": {}}
    for path in paths:
        found = read_metadata(path).get("labels", {})
        try:
            for kind, known in labels.items():
                for slug, label in found.get(kind, []):
                    known.setdefault(str(slug), str(label))
        except (AttributeError, TypeError, ValueError):
            raise DeltapError(f"{path}: the labels in its metadata are no pairs of name and label") from None
    return labels


def together(
    frames: Sequence[tuple[TableSource, pd.DataFrame]], entry: FigureEntry, labels: Labels
) -> tuple[pd.DataFrame, Labels, FigureEntry]:
    """Return the rows of all tables as one, with models that are told apart by their table's label and extractor.

    A model then has a slug, a label and a place of its own for each; ``entry`` and ``labels`` are returned to suit.
    """
    slugs: dict[str, dict[str, str]] = {}
    result = []
    for source, rows in frames:
        models, extractors = rows["model"].astype(str), rows["extractor"].astype(str)
        marks = pd.Series([""] * len(rows), index=rows.index)
        if source.label:
            marks += f", {source.label}"
        if entry.extractor == "all":
            marks += ", " + extractors
        for model, mark in pd.DataFrame({"model": models, "mark": marks}).drop_duplicates().itertuples(index=False):
            label = labels["model"].get(model, model)
            slugs.setdefault(model, {})[model + mark] = label + mark
        result.append(rows.assign(model=models + marks))
    order = [*(entry.models or ()), *labels["model"], *slugs]
    told_apart = {new: label for model in dict.fromkeys(order) for new, label in slugs.get(model, {}).items()}
    return (
        pd.concat(result, ignore_index=True),
        {**labels, "model": told_apart},
        entry.model_copy(update={"models": None}),
    )
