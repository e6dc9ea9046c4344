"""Files that were made elsewhere and replace a stage: answers, exact tokens and labels.

A row belongs to the question that its ``question_id`` names, or to the one whose words its ``question`` has; where it
has both, they must not belong to different questions. Columns ``dataset`` and ``model`` say what it counts for; without
them it counts for every one.
"""

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Generic, TypeVar

from deltap.errors import DeltapError
from deltap.exact.found import NamedSpans
from deltap.questions.containers import file_rows
from deltap.questions.reading import check_bad_rows
from deltap.questions.rows import BadRow
from deltap.questions.values import text, texts
from deltap.settings import LABEL_NAMES
from deltap.text import normalise

logger = logging.getLogger("deltap")
Value = TypeVar("Value")


@dataclass(frozen=True)
class _Row(Generic[Value]):
    place: str
    answer: str | None
    """The normalised answer that the row is for; None for any."""
    value: Value


@dataclass
class Given(Generic[Value]):
    """What the files say about the questions of one model and data set; false where they say nothing about them."""

    _rows: dict[str, list[_Row[Value]]] = field(default_factory=dict)
    """By question id."""

    def __bool__(self) -> bool:
        return bool(self._rows)

    def find(self, question: Mapping[str, Any], answer: str | None = None) -> Value | None:
        """Return what is given for a question (a row with ``question_id``) and ``answer``, or None.

        A row for this very answer comes before one for any.
        """
        rows, wanted = self._of(question), normalise(answer or "")
        mine = [row for row in rows if row.answer is not None and row.answer == wanted]
        return next((row.value for row in (*mine, *(row for row in rows if row.answer is None))), None)

    def find_all(self, question: Mapping[str, Any]) -> list[Value]:
        """Return everything that is given for a question, whatever the answer."""
        return [row.value for row in self._of(question)]

    def _of(self, question: Mapping[str, Any]) -> list[_Row[Value]]:
        return self._rows.get(question["question_id"], [])

    def add(self, question_id: str, row: _Row[Value]) -> None:
        """Add a row; raise DeltapError where another one says something else about the same question."""
        rows = self._rows.setdefault(question_id, [])
        for other in rows:
            if other.answer == row.answer and other.value != row.value:
                raise DeltapError(f"{row.place}: says something else than {other.place} about the same question")
        rows.append(row)


def read_answers(
    paths: Sequence[Path], questions: Iterable[Mapping[str, Any]], model: str, dataset: str, bad_rows: float
) -> Given[str]:
    """Return the given answers to the questions of ``dataset`` as ``model``'s; column ``answer``.

    Raises DeltapError for a file without the needed columns, with too many bad rows, or none of whose rows belongs to
    a question although it names no data set.
    """

    def value(row: Mapping[str, Any]) -> str:
        if row.get("answer") is None:
            raise BadRow("no answer")
        return text(row["answer"], "answer")

    return _read(paths, ("answer",), value, questions, model, dataset, bad_rows, for_answers=False)


def read_spans(
    paths: Sequence[Path], questions: Iterable[Mapping[str, Any]], model: str, dataset: str, bad_rows: float
) -> Given[NamedSpans]:
    """Return the given exact tokens; columns ``exact_question``, ``exact_answer``, or one of them.

    Raises DeltapError as `read_answers`.
    """

    def value(row: Mapping[str, Any]) -> NamedSpans:
        phrases = tuple(texts(row.get("exact_question"), "exact_question"))
        core = text(row.get("exact_answer"), "exact_answer") or None
        if not phrases and not core:
            raise BadRow("neither exact_question nor exact_answer has a text")
        return NamedSpans(phrases, core)

    return _read(paths, ("exact_question", "exact_answer"), value, questions, model, dataset, bad_rows)


def read_labels(
    paths: Sequence[Path], questions: Iterable[Mapping[str, Any]], model: str, dataset: str, bad_rows: float
) -> Given[str]:
    """Return the given labels; column ``label``. Raises DeltapError as `read_answers`."""

    def value(row: Mapping[str, Any]) -> str:
        label = text(row.get("label"), "label")
        if label not in LABEL_NAMES:
            raise BadRow(f"label: {label!r} is none of {', '.join(LABEL_NAMES)}")
        return label

    return _read(paths, ("label",), value, questions, model, dataset, bad_rows)


def _read(
    paths: Sequence[Path],
    columns: tuple[str, ...],
    value: Callable[[Mapping[str, Any]], Value],
    questions: Iterable[Mapping[str, Any]],
    model: str,
    dataset: str,
    bad_rows: float,
    for_answers: bool = True,
) -> Given[Value]:
    words = {question["question_id"]: normalise(question["question"]) for question in questions}
    ids = {question: question_id for question_id, question in words.items()}
    given: Given[Value] = Given()
    for path in paths:
        found: dict[str, None] = {}
        reasons, number, others, elsewhere = [], 0, 0, 0
        for row in file_rows(path):
            number += 1
            try:
                fields = _fields(row.value)
                found |= dict.fromkeys(fields)
                if _is_elsewhere(fields, model, dataset):
                    elsewhere += 1
                    continue
                question_id = _question_id(fields, words, ids)
                answer = text(fields.get("answer"), "answer") if for_answers else ""
                item = _Row(row.place, normalise(answer) or None, value(fields))
            except BadRow as bad:
                reasons.append(f"{row.place}: {bad}")
                continue
            if question_id is None:
                others += 1
            else:
                given.add(question_id, item)
        if not number:
            raise DeltapError(f"{path}: no rows; give the right file, or take it out of 'given'")
        if found and not (found.keys() & {"question_id", "question"} and found.keys() & set(columns)):
            raise DeltapError(
                f"{path}: found the columns {', '.join(map(repr, found))}; expected question_id or question, and "
                f"{' or '.join(columns)}"
            )
        check_bad_rows(reasons, number, bad_rows, str(path), "given.bad_rows")
        if others and others + len(reasons) == number:
            raise DeltapError(
                f"{path}: none of its {number} rows belongs to a question of {dataset}; check question_id, or add the "
                "columns dataset and model, which say what a row counts for"
            )
        if number == elsewhere:
            logger.warning(
                "%s: none of %d rows is for %s, %s: all name another model or data set", path, number, model, dataset
            )
        else:
            logger.info("%s: %d of %d rows are for %s, %s", path, number - others - elsewhere, number, model, dataset)
    return given


def _fields(row: Any) -> Mapping[str, Any]:
    if isinstance(row, BadRow):
        raise row
    if not isinstance(row, dict):
        raise BadRow(f"expected an object with columns, found a {type(row).__name__}")
    return row


def _is_elsewhere(fields: Mapping[str, Any], model: str, dataset: str) -> bool:
    """Tell whether a row names another model or data set."""
    return any(
        text(fields.get(name), name) not in ("", wanted) for name, wanted in (("model", model), ("dataset", dataset))
    )


def _question_id(row: Mapping[str, Any], words: Mapping[str, str], ids: Mapping[str, str]) -> str | None:
    """Return the id of the question that a row belongs to, or None if it is none of ours.

    ``words`` are the normalised questions by id, ``ids`` the other way round.
    """
    name = text(row.get("question_id"), "question_id")
    question = normalise(text(row.get("question"), "question"))
    if not name and not question:
        raise BadRow("neither question_id nor question")
    if name in words and question and words[name] != question:
        raise BadRow(f"question_id {name!r} is another question here: {words[name]!r}")
    return name if name in words else ids.get(question)
