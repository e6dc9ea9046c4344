"""What the cells of a row mean: texts, lists, mappings and numbers, as values or written as text."""

import ast
import json
import math
import re
import reprlib
from collections.abc import Mapping
from typing import Any

from deltap.questions.rows import BadRow

_BLANKS = re.compile(r"[\s\x00-\x1f\x7f-\x9f]+")
_QUOTED = re.compile(r"""'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*\"""", re.DOTALL)
_ARRAY = re.compile(r"array\((\[.*?\]), dtype=object\)", re.DOTALL)


def lookup(fields: Mapping[str, Any], column: str) -> Any:
    """Return the value of a column, None where there is none; ``answer.value`` is ``value`` inside ``answer``."""
    if column in fields:
        return fields[column]
    outer, dot, inner = column.partition(".")
    return lookup(mapping(fields.get(outer)), inner) if dot else None


def text(value: Any, column: str) -> str:
    """Return a cell's text with single blanks, "" for a missing one; numbers become text.

    Raises BadRow for any other type, and for text that is not Unicode.
    """
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return ""
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, str | int | float) or value in (math.inf, -math.inf):
        raise BadRow(f"{column}: expected text, found {_shown(value)}")
    return unicode(undamaged(_BLANKS.sub(" ", str(value)).strip()))


def unicode(written: str) -> str:
    """Return ``written``; raise BadRow where UTF-8 cannot write it, so that no table and no tokenizer could take it."""
    try:
        written.encode()
    except UnicodeEncodeError:
        raise BadRow("text that is not Unicode: bytes that are not UTF-8, or half of a surrogate pair") from None
    return written


def undamaged(written: str) -> str:
    """Undo the quoting of a CSV cell that was taken for its text: ``"Who wrote ""Emma""?"``.

    That is a text in quotes, inside which quotes stand in pairs only; any other is returned as it is, such as
    ``"Emma"`` or ``a sequel to "", which``.
    """
    if len(written) < 2 or written[0] != '"' or written[-1] != '"':
        return written
    inner = written[1:-1]
    if '""' not in inner or '"' in inner.replace('""', ""):
        return written
    return inner.replace('""', '"').strip()


def texts(value: Any, column: str) -> list[str]:
    """Return the texts of a cell: a list, a list written as JSON or by Python, or a single text.

    Missing and empty ones are left out. Raises BadRow where an item is no text, or a list cannot be read.
    """
    if isinstance(value, str) and value.strip()[:1] == "[" and value.strip()[-1:] == "]":
        value = _written_list(value.strip(), column)
    items = value if isinstance(value, list | tuple) else [value]
    return [item for item in (text(item, column) for item in items) if item]


def _written_list(written: str, column: str) -> list[Any]:
    try:
        return json.loads(written)
    except (ValueError, RecursionError):
        pass
    # numpy writes no commas (['Rome' 'Roma']), and as Python that would be the one text 'RomeRoma'.
    if not _QUOTED.sub("", written[1:-1]).strip():
        written = f"[{','.join(_QUOTED.findall(written))}]"
    value = _evaluated(written)
    if not isinstance(value, list):
        raise BadRow(f"{column}: not a list that can be read: {_shown(written)}")
    return value


def mapping(value: Any) -> Mapping[str, Any]:
    """Return a cell's mapping, as such or written as JSON or by Python; an empty one for anything else."""
    if isinstance(value, str) and value.strip()[:1] == "{":
        try:
            value = json.loads(value)
        except (ValueError, RecursionError):
            value = _evaluated(_ARRAY.sub(r"\1", value.strip()))
    return value if isinstance(value, Mapping) else {}


def _evaluated(written: str) -> Any:
    """Return the value of a Python literal, None where it is none."""
    try:
        return ast.literal_eval(written)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return None


def number(value: Any, column: str) -> float | None:
    """Return a cell's number, None for a missing one. Raises BadRow where it is no number."""
    if value is None or value == "":
        return None
    try:
        if isinstance(value, bool) or not isinstance(value, int | float | str):
            raise ValueError
        result = float(value)
    except (ValueError, OverflowError):
        raise BadRow(f"{column}: expected a number, found {_shown(value)}") from None
    return result if math.isfinite(result) else None


def as_json(value: Any) -> str:
    """Return a cell's value as JSON with sorted keys; what JSON does not know becomes text, NaN null.

    Raises BadRow for one that is nested too deep.
    """
    try:
        return json.dumps(_plain(value), sort_keys=True, ensure_ascii=False)
    except RecursionError:
        raise BadRow("nested too deep to be read") from None


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return value if value is None or isinstance(value, str | int) else str(value)


def _shown(value: Any) -> str:
    return reprlib.repr(value)
