"""Which files a configured figure becomes."""

from collections.abc import Iterable
from itertools import product

from deltap.errors import DeltapError, nearest
from deltap.settings import FigureEntry


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
    ``<name>_<grouping>_<site>_<position>`` for each combination of what the run has, with ``_<extractor>`` at
    the end where the run has several.

    Raises DeltapError when the figure names something that the run does not measure.
    """
    extractors = list(extractors)
    keys = ("grouping", "site", "position", "extractor")
    measured = (groupings, sites, positions, extractors)
    choices = [_choices(name, key, getattr(entry, key), found) for key, found in zip(keys, measured, strict=True)]
    named = None not in (entry.grouping, entry.site, entry.position)
    variants = {}
    for combination in product(*choices):
        parts = [] if named else list(combination[:3])
        if len(extractors) > 1 and entry.extractor is None:
            parts.append(combination[3])
        variants["_".join([name, *parts])] = entry.model_copy(update=dict(zip(keys, combination, strict=True)))
    return variants


def _choices(name: str, key: str, chosen: str | None, measured: Iterable[str]) -> list[str]:
    measured = list(measured)
    if chosen is None:
        return measured
    if chosen not in measured:
        hint = nearest(chosen, measured)
        raise DeltapError(f"figure {name!r}: {key} {chosen!r} is not measured in this run{hint}")
    return [chosen]
