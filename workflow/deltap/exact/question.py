"""The exact question: the spans of a question's core frame elements, its subject and the property asked for."""

from dataclasses import dataclass
from typing import Literal

from deltap.exact.question_fields import spans_by_fields
from deltap.exact.question_rules import spans_by_rules
from deltap.exact.spans import Span
from deltap.settings import Extractor


@dataclass(frozen=True, slots=True)
class Found:
    """The spans of an exact question, in order and apart from each other, and who found them."""

    spans: tuple[Span, ...]
    source: Literal["fields", "rules"]


def exact_question(question: str, subject: str | None, property_name: str | None, extractor: Extractor) -> Found | None:
    """Return the exact question, or None where there is none to find.

    ``fields`` uses the data set's own subject and property and finds nothing where the question does not name the
    subject; ``rules`` uses the question alone and finds nothing only in a text without any word; ``auto`` takes the
    fields where they apply, else the rules.
    """
    if extractor != "rules" and subject and (spans := spans_by_fields(question, subject, property_name)):
        return Found(spans, "fields")
    if extractor != "fields" and (spans := spans_by_rules(question)):
        return Found(spans, "rules")
    return None
