"""Which columns of a row mean what, for each format of question file.

A new data set is a `Shape` in `FORMATS` (and its name in `settings.DatasetSource.format`), or without any code an entry
of format ``table`` with the names of its columns.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from deltap.files import digest
from deltap.questions.question import Question
from deltap.questions.rows import BadRow
from deltap.questions.values import as_json, lookup, mapping, number, text, texts, unicode
from deltap.settings import DatasetSource
from deltap.text import normalise


@dataclass(frozen=True)
class Shape:
    """The columns of one kind of row. ``answer.value`` is the value ``value`` inside the column ``answer``."""

    question: str
    gold_answers: tuple[str, ...]
    """Their texts are joined in this order; the first one is the preferred answer."""
    question_id: tuple[str, ...] = ("id",)
    """The first of these that has a value counts; an id is made where none has."""
    subject: str = "subject"
    property: str = "property"
    popularity: str = "popularity"
    question_type: str = "question_type"
    left_out: frozenset[str] = frozenset()
    """Columns that would fill ``extra`` with texts of no use here."""

    def needed(self) -> tuple[str, ...]:
        """Return the outer columns by which a row of this shape is recognised."""
        return tuple(dict.fromkeys(column.partition(".")[0] for column in (self.question, *self.gold_answers)))

    def used(self) -> frozenset[str]:
        """Return every column whose value goes to a column of the questions table."""
        single = (self.question, self.subject, self.property, self.popularity, self.question_type)
        return frozenset((*single, *self.gold_answers, *self.question_id))

    def fits(self, fields: Mapping[str, Any]) -> bool:
        """Tell whether a row has the columns that are needed."""
        exact = (self.question, *self.gold_answers)
        return all(column in fields or column.partition(".")[0] in fields for column in exact)


# What the questions were once asked about; questions are asked without it here.
_PASSAGES = frozenset(("context", "supporting_facts", "search_results", "entity_pages", "SearchResults", "EntityPages"))
_FLASHRAG = Shape(
    "question",
    ("golden_answers",),
    subject="metadata.subj",
    property="metadata.prop",
    popularity="metadata.s_pop",
    question_type="metadata.type",
    left_out=_PASSAGES,
)

FORMATS: dict[str, tuple[Shape, ...]] = {
    "popqa": (
        Shape("question", ("possible_answers",), subject="subj", property="prop", popularity="s_pop"),
        _FLASHRAG,
    ),
    "triviaqa": (
        Shape("Question", ("Answer.Value", "Answer.Aliases"), ("QuestionId",), left_out=_PASSAGES),
        Shape("question", ("answer.value", "answer.aliases"), ("question_id",), left_out=_PASSAGES),
        _FLASHRAG,
    ),
    "hotpotqa": (
        Shape("question", ("answer",), ("id", "_id"), question_type="type", left_out=_PASSAGES),
        _FLASHRAG,
    ),
    "nq": (Shape("question", ("answer",)), _FLASHRAG),
}
_TABLE_ANSWERS = ("gold_answers", "golden_answers", "answers", "answer", "possible_answers")


def shapes_of(entry: DatasetSource) -> tuple[Shape, ...]:
    """Return the shapes that the rows of a data set may have, the more likely ones first."""
    if entry.format != "table":
        return FORMATS[entry.format]
    columns = entry.columns
    answers = (columns["gold_answers"],) if "gold_answers" in columns else _TABLE_ANSWERS
    return tuple(
        Shape(
            columns.get("question", "question"),
            (answer,),
            (columns["question_id"],) if "question_id" in columns else ("question_id", "id"),
            subject=columns.get("subject", "subject"),
            property=columns.get("property", "property"),
            popularity=columns.get("popularity", "popularity"),
            question_type=columns.get("question_type", "question_type"),
        )
        for answer in answers
    )


def read_question(shape: Shape, fields: Mapping[str, Any], dataset: str) -> Question:
    """Return the question of a row.

    A row without an id gets the data set's name and a digest of its content. Raises BadRow with the reason where the
    row cannot be used.
    """
    question = text(lookup(fields, shape.question), shape.question)
    if not normalise(question):
        raise BadRow("no question")
    answers = [answer for column in shape.gold_answers for answer in texts(lookup(fields, column), column)]
    gold_answers = tuple(dict.fromkeys(answers))
    if not any(map(normalise, gold_answers)):
        symbols = f"; only {', '.join(map(repr, gold_answers))} without a letter or digit" if gold_answers else ""
        raise BadRow(f"no answers{symbols}")

    def optional(column: str) -> str | None:
        return text(lookup(fields, column), column) or None

    identifiers = (optional(column) for column in shape.question_id)
    identifier = next((identifier for identifier in identifiers if identifier), None)
    subject, property_ = optional(shape.subject), optional(shape.property)
    return Question(
        question_id=identifier or f"{dataset}-{digest([question, gold_answers, subject, property_])[:12]}",
        question=question,
        gold_answers=gold_answers,
        subject=subject,
        property=property_,
        popularity=number(lookup(fields, shape.popularity), shape.popularity),
        question_type=optional(shape.question_type),
        extra=unicode(as_json(_rest(shape, fields))),
    )


def _rest(shape: Shape, fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return what the shape does not use, also inside columns of which it uses a part."""
    used, rest = shape.used(), {}
    for name, value in fields.items():
        if name in used or name in shape.left_out:
            continue
        inner = {column.partition(".")[2] for column in used if column.startswith(f"{name}.")}
        if inner:
            value = {key: item for key, item in mapping(value).items() if key not in inner | shape.left_out}
        if value or not inner:
            rest[name] = value
    return rest
