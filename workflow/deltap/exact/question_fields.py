"""Exact question by fields: where the data set's subject and property stand in its question."""

import re

from deltap.exact.question_rules import spans_by_rules
from deltap.exact.spans import Span, merged, occurrences
from deltap.exact.words import words_of

# PopQA's questions by property, [the words that ask for it] in brackets.
# Source: "When Not to Trust Language Models" (Mallen et al., ACL 2023), the templates of its 16 relations.
POPQA_TEMPLATES = {
    "occupation": "What is {}'s [occupation]?",
    "place of birth": "In what [city] was {} [born]?",
    "genre": "What [genre] is {}?",
    "father": "Who is the [father] of {}?",
    "country": "In what [country] is {}?",
    "producer": "Who was the [producer] of {}?",
    "director": "Who was the [director] of {}?",
    "capital of": "What is {} the [capital] of?",
    "screenwriter": "Who was the [screenwriter] for {}?",
    "composer": "Who was the [composer] of {}?",
    "color": "What [color] is {}?",
    "religion": "What is the [religion] of {}?",
    "sport": "What [sport] does {} [play]?",
    "author": "Who is the [author] of {}?",
    "mother": "Who is the [mother] of {}?",
    "capital": "What is the [capital] of {}?",
}


def spans_by_fields(question: str, subject: str, property_name: str | None) -> tuple[Span, ...]:
    """Return the spans of subject and property in ``question``, or none where the subject does not stand in it.

    A question made by PopQA's template has both where the template puts them. In any other question the subject is
    its first place on word boundaries, and the property its name's words; where those are missing, what the rules
    find beside the subject.
    """
    property_name = (property_name or "").replace("_", " ").strip()
    places = occurrences(subject.strip(), question)
    if not places:
        return ()
    template = POPQA_TEMPLATES.get(property_name.casefold())
    if template and (by_template := _by_template(question, template, places)):
        return by_template
    place = places[0]
    wanted = [word.text for word in words_of(property_name) if word.content]
    named = [span for word in wanted for span in occurrences(word, question) if not span.overlaps(place)]
    beside = named or [span for span in spans_by_rules(question) if not span.overlaps(place)]
    return merged([place, *beside], question)


def _by_template(question: str, template: str, places: list[Span]) -> tuple[Span, ...]:
    """Return the spans of a question that ``template`` made with one of ``places`` as its subject, or none."""
    pattern = re.escape(template).replace(r"\[", "(").replace(r"\]", ")").replace(r"\{\}", "(?P<subject>.+)")
    match = re.fullmatch(pattern, question.strip().replace("’", "'"), re.IGNORECASE)
    before = len(question) - len(question.lstrip())
    if not match or Span(*match.span("subject")).shifted(before) not in places:
        return ()
    groups = range(1, match.re.groups + 1)
    return merged((Span(*match.span(group)).shifted(before) for group in groups), question)
