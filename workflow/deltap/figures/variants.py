"""Which files a configured figure becomes, and which tables it is drawn from."""

from collections.abc import Iterable
from itertools import product
from pathlib import Path

from deltap.errors import DeltapError, nearest
from deltap.settings import FigureEntry

_TABLES = {
    "delta_p": ("delta_p_summary", "anchors", "delta_p"),
    "flip_rate": ("anchors",),  # the others may have samples of one anchor only
    "delta_p_distribution": ("anchors",),
    "groups": ("anchors",),
    "auroc": ("probes",),
    "exclusions": ("samples", "answers"),
    "controls": ("controls",),
}


def table_names(entry: FigureEntry) -> tuple[str, ...]:
    """Return the tables of a run that a figure can be drawn from, the quickest first."""
    names = _TABLES[entry.kind]
    if is_control(entry):
        names = tuple(name for name in names if name != "anchors")  # which has the method itself only
    if entry.kind == "delta_p" and (getattr(entry, "reference_class", None) or getattr(entry, "interval", None)):
        return names[1:] + names[:1]  # what a summary was not made with it does not carry
    return names


def is_control(entry: FigureEntry) -> bool:
    """Tell whether a figure shows what only a run with controls has."""
    usual = {"intervention": "exact_question", "estimate": "plain", "beside": None}
    return entry.kind == "controls" or any(getattr(entry, key, value) != value for key, value in usual.items())


def find_table(path: str | Path, entry: FigureEntry) -> Path:
    """Return the table that a figure is drawn from: ``path`` itself, or in the folder ``path`` of a run's results.

    Raises DeltapError when there is none.
    """
    path = Path(path)
    if not path.exists():
        raise DeltapError(f"{path}: no such table or folder of tables")
    if not path.is_dir():
        return path
    files = [path / f"{name}.parquet" for name in table_names(entry)]
    for file in files:
        if file.is_file():
            return file
    raise DeltapError(f"{path}: this folder has no {' or '.join(file.name for file in files)}")


def figure_variants(
    name: str,
    entry: FigureEntry,
    sites: Iterable[str],
    positions: Iterable[str],
    groupings: Iterable[str],
    extractors: Iterable[str],
) -> dict[str, FigureEntry]:
    """Return file stem → entry with one site, position, grouping and extractor, for what a run measures.

    A figure for which only one combination is left is the one file ``<name>``. Else there is a file
    ``<name>_<grouping>_<site>_<position>`` for each combination of what the run has (of these, what the figure's
    kind has), with ``_<extractor>`` at the end where the run has several. Of tables from elsewhere nobody knows what
    they have: what is named is taken for granted, and the extractor is the only one there is.

    Raises DeltapError when the figure names something that the run does not measure.
    """
    extractors = list(extractors)
    measured = {"grouping": groupings, "site": sites, "position": positions}
    choices = {
        key: _choices(name, key, getattr(entry, key), found, bool(entry.tables))
        for key, found in measured.items()
        if hasattr(entry, key)
    }
    named = all(getattr(entry, key) is not None for key in choices)
    if not entry.tables and entry.extractor != "all":
        choices["extractor"] = _choices(name, "extractor", entry.extractor, extractors, False)
    variants = {}
    for combination in product(*choices.values()):
        chosen = dict(zip(choices, combination, strict=True))
        parts = [] if named else [value for key, value in chosen.items() if key != "extractor"]
        if "extractor" in chosen and len(extractors) > 1 and entry.extractor is None:
            parts.append(chosen["extractor"])
        variants["_".join([name, *parts])] = entry.model_copy(update=chosen)
    return variants


def _choices(name: str, key: str, chosen: str | None, measured: Iterable[str], elsewhere: bool) -> list[str]:
    measured = list(measured)
    if chosen is None:
        return measured
    if chosen not in measured and not elsewhere:
        hint = nearest(chosen, measured)
        raise DeltapError(f"figure {name!r}: {key} {chosen!r} is not measured in this run{hint}")
    return [chosen]
