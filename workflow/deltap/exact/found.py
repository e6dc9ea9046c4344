"""Exact tokens with who found them, and the order in which extractors ask."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from deltap.exact.spans import Span, merged, occurrences

Source = Literal["given", "fields", "llm", "rules"]
Phrases = Mapping[Source, Sequence[str]]
"""What a given file and a language model name, word for word; the sources that say nothing are missing."""


@dataclass(frozen=True, slots=True)
class NamedSpans:
    """The exact tokens of a question and of its answer as a file or a language model names them, word for word."""

    exact_question: tuple[str, ...]
    exact_answer: str | None


@dataclass(frozen=True, slots=True)
class Found:
    """The spans of exact tokens, in order and apart from each other, and who found them."""

    spans: tuple[Span, ...]
    source: Source


def spans_of_phrases(phrases: Sequence[str], text: str) -> tuple[Span, ...]:
    """Return every place of each phrase in ``text``, or none where one of them does not stand there word for word."""
    places = [occurrences(phrase.strip(), text) for phrase in phrases]
    return merged([span for spans in places for span in spans], text) if all(places) else ()
