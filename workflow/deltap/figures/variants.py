"""Which files a configured figure becomes."""

from collections.abc import Iterable
from itertools import product

from deltap.errors import DeltapError, nearest
from deltap.settings import FigureEntry


def figure_variants(
    name: str, entry: FigureEntry, sites: Iterable[str], positions: Iterable[str], groupings: Iterable[str]
) -> dict[str, FigureEntry]:
    """Return file stem → entry with one site, one position and one grouping, for what a run measures.

    A figure that names all three is the one file ``<name>``. Where it leaves any of them null, there is a
    file ``<name>_<grouping>_<site>_<position>`` for each combination of what the run has.

    Raises DeltapError when the figure names something that the run does not measure.
    """
    grouping = _choices(name, "grouping", entry.grouping, groupings)
    site = _choices(name, "site", entry.site, sites)
    position = _choices(name, "position", entry.position, positions)
    if None not in (entry.grouping, entry.site, entry.position):
        return {name: entry}
    return {
        f"{name}_{g}_{s}_{p}": entry.model_copy(update={"grouping": g, "site": s, "position": p})
        for g, s, p in product(grouping, site, position)
    }


def _choices(name: str, key: str, chosen: str | None, measured: Iterable[str]) -> list[str]:
    measured = list(measured)
    if chosen is None:
        return measured
    if chosen not in measured:
        hint = nearest(chosen, measured)
        raise DeltapError(f"figure {name!r}: {key} {chosen!r} is not measured in this run{hint}")
    return [chosen]
