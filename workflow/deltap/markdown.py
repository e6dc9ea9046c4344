"""Reports that people read: tables and numbers in Markdown."""

import re
from collections.abc import Iterable, Sequence

NOTHING = "–"
# An underscore inside of a word, as of a column's name, is itself already.
_MARKS = re.compile(r"([\\|*`<]|\](?=[(:])|(?<!\w)_|_(?!\w)|&(?=#?\w+;))")


def escaped(text: str) -> str:
    """Return a text of one line that Markdown shows as it is."""
    return _MARKS.sub(r"\\\1", " ".join(text.split()))


def table(header: Sequence[str], rows: Iterable[Sequence[str | int]]) -> str:
    """Return a table; columns without a letter, such as numbers and shares, stand on the right.

    Cells are padded, so that the file reads as plain text too.
    """
    cells = [[escaped(str(cell)) for cell in row] for row in rows]
    columns = list(zip(*[[escaped(name) for name in header], *cells], strict=True))
    widths = [max(3, *map(len, column)) for column in columns]
    padded = []
    for column, width in zip(columns, widths, strict=True):
        right = bool(cells) and not any(character.isalpha() for cell in column[1:] for character in cell)
        name, *values = [cell.rjust(width) if right else cell.ljust(width) for cell in column]
        padded.append([name, "-" * (width - 1) + (":" if right else "-"), *values])
    return "".join(f"| {' | '.join(line)} |\n" for line in zip(*padded, strict=True))


def share(value: float | None) -> str:
    """Return a share as a percentage, a dash for none."""
    return NOTHING if value is None else f"{value:.1%}"


def mean(value: float | None) -> str:
    """Return a mean with one decimal, a dash for none."""
    return NOTHING if value is None else f"{value:.1f}"
