"""The exact question: the spans of a question's core frame elements, its subject and the property asked for."""

from deltap.exact.found import Found, Phrases, Source, spans_of_phrases
from deltap.exact.question_fields import spans_by_fields
from deltap.exact.question_rules import spans_by_rules
from deltap.exact.spans import Span
from deltap.settings import Extractor

# Whom each extractor asks, one after another until one finds something.
ORDER: dict[Extractor, tuple[Source, ...]] = {
    "auto": ("given", "fields", "llm", "rules"),
    "given": ("given",),
    "fields": ("fields",),
    "llm": ("llm",),
    "rules": ("rules",),
}


def exact_question(
    question: str, subject: str | None, property_name: str | None, extractor: Extractor, named: Phrases | None = None
) -> Found | None:
    """Return the exact question, or None where there is none to find.

    ``fields`` uses the data set's own subject and property and finds nothing where the question does not name the
    subject; ``rules`` uses the question alone and finds nothing only in a text without any word; ``given`` and ``llm``
    are what ``named`` says, and find nothing where a part of it does not stand in the question word for word.
    """
    for source in ORDER[extractor]:
        if spans := question_spans(source, question, subject, property_name, named or {}):
            return Found(spans, source)
    return None


def question_spans(
    source: Source, question: str, subject: str | None, property_name: str | None, named: Phrases
) -> tuple[Span, ...]:
    """Return what one source finds of the exact question, or nothing."""
    if source == "rules":
        return spans_by_rules(question)
    if source == "fields":
        return spans_by_fields(question, subject, property_name) if subject else ()
    return spans_of_phrases(named.get(source, ()), question)
