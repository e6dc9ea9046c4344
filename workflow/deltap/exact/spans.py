"""Spans of characters, and the tokens that carry them."""

import unicodedata
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from deltap.text import is_boundary


@dataclass(frozen=True, order=True, slots=True)
class Span:
    """The characters ``start`` … ``end - 1`` of a text; never empty."""

    start: int
    end: int

    def __post_init__(self) -> None:
        if not 0 <= self.start < self.end:
            raise ValueError(f"a span needs 0 <= start < end, not {self.start}, {self.end}")

    def text_in(self, text: str) -> str:
        """Return the characters of ``text`` that the span covers."""
        return text[self.start : self.end]

    def shifted(self, by: int) -> "Span":
        """Return the same span in a text that has ``by`` more characters before it."""
        return Span(self.start + by, self.end + by)

    def overlaps(self, other: "Span") -> bool:
        """Tell whether the two spans have a character in common."""
        return self.start < other.end and other.start < self.end


def merged(spans: Iterable[Span], text: str) -> tuple[Span, ...]:
    """Return the spans in order, those that overlap or have only blanks between them made one."""
    result: list[Span] = []
    for span in sorted(spans):
        if result and not text[result[-1].end : span.start].strip():
            result[-1] = Span(result[-1].start, max(result[-1].end, span.end))
        else:
            result.append(span)
    return tuple(result)


def tokens_of_span(span: Span, offsets: Sequence[tuple[int, int]]) -> list[int]:
    """Return the positions of the fewest tokens that hold every character of ``span``, in order.

    ``offsets`` are the tokens' characters as (start, end), as a tokenizer returns them. They may hold characters
    outside the span (byte-level ``" Rome"``); several tokens may share one character (an emoji's bytes), then all
    of them are needed; special tokens have empty offsets and hold nothing.
    """
    return [
        index for index, (start, end) in enumerate(offsets) if start < end and start < span.end and span.start < end
    ]


def occurrences(phrase: str, text: str) -> list[Span]:
    """Return every place where ``phrase`` stands in ``text`` on word boundaries.

    Places with the same letters are preferred; only where there are none, case, the kind of apostrophe and the
    composition of accents are ignored.
    """
    return _places(phrase, text, str) or _places(phrase, text, _folded)


def _places(phrase: str, text: str, fold: Callable[[str], str]) -> list[Span]:
    pieces = [fold(character) for character in text]
    # The character of the text that each folded character came from, and the text's end.
    origin = [index for index, piece in enumerate(pieces) for _ in piece] + [len(text)]
    wanted, searched = "".join(map(fold, phrase)), "".join(pieces)
    result = []
    at = searched.find(wanted) if wanted else -1
    while at >= 0:
        end = at + len(wanted)
        start, stop = origin[at], origin[end]
        whole = (at == 0 or origin[at - 1] < start) and origin[end - 1] < stop
        if whole and is_boundary(text, start) and is_boundary(text, stop):
            result.append(Span(start, stop))
        at = searched.find(wanted, at + 1)
    return result


def _folded(character: str) -> str:
    decomposed = unicodedata.normalize("NFKD", character).casefold().replace("’", "'")
    return unicodedata.normalize("NFKD", decomposed)
