"""Words of a text with their places, and what English words do in a sentence.

The word lists are English, as the data sets are. In other languages every word counts as a content word, so that
nothing is lost and only precision suffers.
"""

import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass

from deltap.exact.spans import Span
from deltap.text import is_unspaced


def lexicon(words: str) -> frozenset[str]:
    """Return the words of a list written as a text with blanks between them."""
    return frozenset(words.split())


QUESTION_WORDS = lexicon("what which who whom whose where when why how")

# Words that ask for nothing and name nothing.
FUNCTION_WORDS = QUESTION_WORDS | lexicon("""
    a an the this that these those some any each every all either neither both such other another
    i me my mine we us our ours you your yours he him his she her hers it its they them their theirs one ones
    am is are was were be been being do does did doing done has have had having
    can could may might must shall should will would ought
    isn't aren't wasn't weren't don't doesn't didn't hasn't haven't hadn't can't couldn't won't wouldn't
    who's what's where's when's how's that's there's it's he's she's
    of in on at by for to from with without within into onto upon about above below over under between among
    against during before after since until till through throughout across along around near off out up down
    toward towards behind beyond beside besides despite except per via as like than regards terms prior
    and or but nor so yet if then else because although though while whereas whether unless
    not no yes there here now also too very much many more just only even ever never still again already
    quite rather
    called named known considered following
    currently originally chiefly mainly mostly officially commonly usually alternatively respectively explicitly
    widely probably nearly approximately roughly exactly actually
    """)

# Verbs that join a subject to what is said about it.
COPULAS = lexicon("is are was were be been isn't wasn't aren't weren't")

# What stands inside names and titles without a capital letter.
PARTICLES = lexicon("""
    of the de del della delle dello der den des di da do dos das du la le les lo el al y e et i und
    van von vom zu zur zum ter ten te bin ibn bint ben bar ud ul din abu ap af av n v vs
    """)

# After these a full stop does not end a sentence.
_ABBREVIATIONS = lexicon("""
    jr sr dr mr mrs ms st prof rev gen col capt lt sgt gov sen rep hon no vol mt ft inc ltd co corp bros approx ca v vs
    jan feb mar apr jun jul aug sep sept oct nov dec
    """)

# A mask of a text has one character for each of its own: "w" letter or combining mark, "0" digit, "u" a character of
# a script without blanks (a word by itself), signs as they are.
_WORD = re.compile(
    r"""
    u | [w0]+ (?:
        (?: ['’`\-‐‑–/&@·_]    # O'Brien, Rolls-Royce, 1914–18, R&B
          | (?<=0)[.,:](?=0)    # 3,677  17.5  10:30
          | (?<=\bw)\.          # F.C
        ) [w0]+
    )*
    """,
    re.VERBOSE,
)
_SENTENCE_END = re.compile("[.!?…؟।]")
_FULL_STOP = re.compile("[。！？\n]")


@dataclass(frozen=True, slots=True)
class Word:
    """One word of a text."""

    text: str
    span: Span
    starts_sentence: bool
    gap: str
    """The characters between the word before (or the text's start) and this one."""

    @property
    def lower(self) -> str:
        """The word in lower case, with straight apostrophes; the form of the word lists."""
        return self.text.casefold().replace("’", "'").removesuffix(".")

    @property
    def capitalised(self) -> bool:
        """Whether a capital letter stands in the word (``Paris``, ``iPhone``, ``d'Égypte``)."""
        return any(character.isupper() or character.istitle() for character in self.text)

    @property
    def numeric(self) -> bool:
        """Whether a digit stands in the word."""
        return any(character.isnumeric() for character in self.text)

    @property
    def content(self) -> bool:
        """Whether the word says something of its own."""
        return self.lower not in FUNCTION_WORDS

    @property
    def bare(self) -> Span:
        """The word's span without the ending of a possessive."""
        possessive = self.lower.endswith("'s") and len(self.text) > 2
        return Span(self.span.start, self.span.end - 2) if possessive else self.span


def words_of(text: str) -> list[Word]:
    """Return the words of ``text`` in order; any script, emoji and signs are no words."""
    result: list[Word] = []
    end = 0
    for match in _WORD.finditer("".join(map(_mask, text))):
        start, stop = match.span()
        if _keeps_full_stop(text, start, stop):
            stop += 1
        gap = text[end:start]
        result.append(Word(text[start:stop], Span(start, stop), not result or _ends_sentence(gap, text[start]), gap))
        end = stop
    return result


def _mask(character: str) -> str:
    category = unicodedata.category(character)[0]
    if category not in "LMN":
        return character
    if is_unspaced(character):
        return "u"
    return "0" if category == "N" else "w"


def _keeps_full_stop(text: str, start: int, stop: int) -> bool:
    """Tell whether the full stop after a word belongs to it: an initial, "F.C." or an abbreviation."""
    if text[stop : stop + 1] != ".":
        return False
    word = text[start:stop].casefold()
    follows = text[stop + 1 : stop + 3].strip()[:1]
    if word == "no":
        return follows.isdigit()
    initial = len(word) == 1 and text[start].isupper() and follows.isalpha()
    dotted = "." in word and word.replace(".", "").isalpha()
    return dotted or initial or word in _ABBREVIATIONS


def _ends_sentence(gap: str, first: str) -> bool:
    return bool(_FULL_STOP.search(gap)) or (bool(_SENTENCE_END.search(gap)) and not first.islower())


def sentences(words: Sequence[Word]) -> list[list[Word]]:
    """Return the words grouped by sentence."""
    result: list[list[Word]] = []
    for word in words:
        if word.starts_sentence:
            result.append([])
        result[-1].append(word)
    return result
