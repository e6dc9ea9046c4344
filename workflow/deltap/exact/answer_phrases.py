"""The phrases of a sentence: what stands between its verbs, prepositions and commas."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby

from deltap.exact.names import names, quoted_titles
from deltap.exact.words import COPULAS, FUNCTION_WORDS, PARTICLES, QUESTION_WORDS, Word, lexicon

_VERBS = COPULAS | lexicon("""
    has have had does did do can could may might must shall should will would
    wrote composed directed produced painted sang sung recorded performed played plays won wins beat discovered
    invented founded created built designed made led ruled lives lived died became becomes refers means stands
    represents contains consists includes lies sits comes came took takes used born located situated nestled written
    known called named titled entitled based released published held starring
    """)
JOINS = frozenset(("and", "or", "&"))
# "of" and the particles of names stay inside a phrase.
_BREAKS = (FUNCTION_WORDS - PARTICLES - JOINS) | _VERBS
_NEXT_SEGMENT = re.compile("[,;:(]")
_NEW_CLAUSE = re.compile(r"[(;:—\[]|\s[–-]+\s")


@dataclass(frozen=True, slots=True)
class Piece:
    """A name, title or number as a whole, or one other word."""

    words: tuple[Word, ...]
    whole: bool

    @property
    def lower(self) -> str:
        """The word in lower case; "" for what is taken as a whole."""
        return "" if self.whole else self.words[0].lower

    @property
    def edge(self) -> bool:
        """Whether a phrase neither begins nor ends with it: a function word or a particle."""
        return self.lower in FUNCTION_WORDS or self.lower in PARTICLES


@dataclass(frozen=True, slots=True)
class Phrase:
    """Pieces that belong together, without function words at the ends."""

    pieces: tuple[Piece, ...]
    after: str
    """The verb or preposition in lower case that the phrase follows, or ""."""
    predicate: bool
    """Whether a verb stands before it."""


def words_in(pieces: Iterable[Piece]) -> list[Word]:
    """Return the words of the pieces, in order."""
    return [word for piece in pieces for word in piece.words]


def pieces_of(sentence: Sequence[Word], text: str) -> list[Piece]:
    """Return the pieces of a sentence of ``text``, in order."""
    titles = quoted_titles(sentence, text)
    names_and_titles = [*titles, *names([word for word in sentence if not any(word.span.overlaps(t) for t in titles)])]

    def key(word: Word) -> int:
        # Words outside names are pieces of their own.
        atoms = [-1 - number for number, span in enumerate(names_and_titles) if word.span.overlaps(span)]
        return atoms[0] if atoms else word.span.start

    result = []
    for number, group in groupby(sentence, key):
        words = tuple(group)
        result.append(Piece(words, number < 0 or words[0].numeric))
    return result


def is_verb(piece: Piece) -> bool:
    """Tell whether the piece is a verb by which answers usually connect their subject to the rest."""
    return piece.lower in _VERBS


def explains(pieces: Sequence[Piece], index: int) -> bool:
    """Tell whether an explanation or another clause begins at ``pieces[index]``.

    A comma begins one unless what follows is of the same form as what precedes: "Nashville, Tennessee", "March 26,
    1973", "red, white and blue".
    """
    gap = pieces[index].words[0].gap
    if index == 0:
        return False
    if _NEW_CLAUSE.search(gap) or pieces[index].lower in QUESTION_WORDS or pieces[index].lower == "that":
        return True
    if "," not in gap:
        return False
    ends = [i for i in range(index + 1, len(pieces)) if _NEXT_SEGMENT.search(pieces[i].words[0].gap)]
    segment = [piece for piece in pieces[index : min(ends, default=len(pieces))] if piece.lower not in JOINS]
    if pieces[index - 1].whole:
        return not all(piece.whole for piece in segment)
    return len(segment) > 2 or any(piece.whole or piece.edge for piece in segment)


def phrases(pieces: Sequence[Piece]) -> list[Phrase]:
    """Return the phrases of a sentence, in order."""
    result: list[Phrase] = []
    current: list[Piece] = []
    after, predicate = "", False

    def close() -> None:
        if trimmed := trim(current):
            result.append(Phrase(tuple(trimmed), after, predicate))
        current.clear()

    for index, piece in enumerate(pieces):
        following = pieces[index + 1].lower if index + 1 < len(pieces) else ""
        # "a city nestled in …"
        participle = bool(current) and piece.lower.endswith("ed") and following in _BREAKS
        # "the god Shiva and the goddess Parvati"
        apart = piece.lower in JOINS and following in ("a", "an", "the")
        breaks = piece.lower in _BREAKS or participle or apart
        if breaks or explains(pieces, index):
            close()
            after = piece.lower if breaks else ""
            predicate = predicate or is_verb(piece)
        if not breaks:
            current.append(piece)
    close()
    return result


def trim(pieces: Sequence[Piece]) -> Sequence[Piece]:
    """Return the pieces without function words and particles at the ends."""
    solid = [index for index, piece in enumerate(pieces) if not piece.edge]
    return pieces[solid[0] : solid[-1] + 1] if solid else []
