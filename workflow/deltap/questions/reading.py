"""From the rows of a data set to its questions; rows that cannot be used are reported and left out."""

import logging
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from deltap.cli import progress
from deltap.errors import DeltapError, nearest
from deltap.questions.question import Question
from deltap.questions.rows import BadRow, Row
from deltap.questions.shapes import Shape, read_question, shapes_of
from deltap.questions.source import source_rows
from deltap.settings import DatasetSource

logger = logging.getLogger(__name__)
_REPORTED = 10  # bad rows that are named one by one


class Reading(NamedTuple):
    """The questions of a data set, in the order of its rows."""

    questions: list[Question]
    rows: int
    bad_rows: int


def read_questions(entry: DatasetSource, dataset: str, bad_share: float) -> Reading:
    """Read every question of a data set.

    Raises DeltapError where the file cannot be read or its columns are others than its format has, where more than
    ``bad_share`` of the rows cannot be used, where none is left, or where two questions have the same id.
    """
    shapes = shapes_of(entry)
    columns: dict[str, None] = {}
    places: dict[str, tuple[str, str]] = {}
    questions, reasons = [], []
    rows, recognised = 0, False
    for row in progress(source_rows(entry, dataset), f"{dataset}: rows", unit="row"):
        rows += 1
        if isinstance(row.value, dict):
            columns.update(dict.fromkeys(row.value))
            recognised = recognised or any(shape.fits(row.value) for shape in shapes)
        try:
            question = _question(row, shapes, dataset)
        except BadRow as bad:
            reasons.append(f"{row.place}: {bad}")
            continue
        _check_id(question, row.place, places)
        questions.append(question)

    if columns and not recognised:
        raise DeltapError(
            f"{_name(entry)}: not a question set of format '{entry.format}': found the columns {_listed(columns)}, "
            f"expected {_expected(shapes)}"
        )
    _check_columns(entry, columns)
    check_bad_rows(reasons, rows, bad_share, _name(entry), "questions.bad_rows")
    if not questions:
        raise DeltapError(f"{_name(entry)}: no questions; it has {rows} rows")
    return Reading(questions, rows, len(reasons))


def _question(row: Row, shapes: tuple[Shape, ...], dataset: str) -> Question:
    if isinstance(row.value, BadRow):
        raise row.value
    if not isinstance(row.value, dict):
        raise BadRow(f"expected an object with columns, found a {type(row.value).__name__}")
    for shape in shapes:
        if shape.fits(row.value):
            return read_question(shape, row.value, dataset)
    raise BadRow(f"found the columns {_listed(row.value)}, expected {_expected(shapes)}")


def _check_id(question: Question, place: str, places: dict[str, tuple[str, str]]) -> None:
    """Refuse an id that another question has; the same question may stand there twice."""
    words, other = places.setdefault(question.question_id, (question.words(), place))
    if words != question.words():
        raise DeltapError(f"two questions have the id {question.question_id!r}: {other} and {place}")


def _check_columns(entry: DatasetSource, found: Iterable[str]) -> None:
    """Refuse a configured column that no row has."""
    for ours, theirs in entry.columns.items():
        if theirs not in found and theirs.partition(".")[0] not in found:
            raise DeltapError(f"{_name(entry)}: no column '{theirs}' for {ours}{nearest(theirs, found)}")


def check_bad_rows(reasons: Sequence[str], rows: int, bad_share: float, name: str, key: str) -> None:
    """Report the rows of the file ``name`` that cannot be used; raise DeltapError for more than ``bad_share`` of all.

    ``key`` is the configuration's name for that share.
    """
    for reason in reasons[:_REPORTED]:
        logger.warning("left out: %s", reason)
    if reasons:
        logger.warning("%s: %d of %d rows cannot be used and are left out", name, len(reasons), rows)
    if reasons and len(reasons) / rows > bad_share:
        raise DeltapError(
            f"{name}: {len(reasons)} of {rows} rows cannot be used, more than the share that {key} "
            f"allows ({bad_share:g}). The first: {reasons[0]}"
        )


def _name(entry: DatasetSource) -> str:
    return str(entry.path or entry.hub)


def _listed(columns: Iterable[str]) -> str:
    # As Python literals, for a name may be anything, even text that cannot be printed.
    return ", ".join(map(repr, columns))


def _expected(shapes: tuple[Shape, ...]) -> str:
    return ", or ".join(" and ".join(map(repr, shape.needed())) for shape in shapes)
