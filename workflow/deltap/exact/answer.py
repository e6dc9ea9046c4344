"""The exact answer: the span of an answer's core, the entity, number or phrase that answers.

Nobody who looks for it sees the gold answer or the label, or else the label would leak into where the probe reads.
"""

from deltap.exact.answer_rules import span_by_rules
from deltap.exact.found import Found, Phrases, Source
from deltap.exact.spans import Span, occurrences
from deltap.settings import Extractor

# Whom each extractor asks, one after another until one finds something. No data set has fields for a model's answer.
ORDER: dict[Extractor, tuple[Source, ...]] = {
    "auto": ("given", "llm", "rules"),
    "given": ("given", "rules"),
    "fields": ("rules",),
    "llm": ("llm",),
    "rules": ("rules",),
}


def exact_answer(answer: str, question: str, extractor: Extractor, named: Phrases | None = None) -> Found | None:
    """Return the exact answer, always one span, or None where there is none to find.

    ``rules`` finds nothing only in an answer without letter and digit; ``given`` and ``llm`` are the first place of
    what ``named`` says, and find nothing where it does not stand in the answer word for word.
    """
    for source in ORDER[extractor]:
        if span := answer_span(source, answer, question, named or {}):
            return Found((span,), source)
    return None


def answer_span(source: Source, answer: str, question: str, named: Phrases) -> Span | None:
    """Return what one source finds of the exact answer, or None."""
    if source == "rules":
        return span_by_rules(answer, question)
    places = [place for phrase in named.get(source, ()) for place in occurrences(phrase.strip(), answer)]
    return places[0] if places else None
