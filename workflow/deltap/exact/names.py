"""Names, quoted titles and numbers in a text, by their signs alone: capital letters, quotation marks, digits."""

import re
from collections.abc import Sequence

from deltap.exact.spans import Span
from deltap.exact.words import PARTICLES, Word

# Opening and closing marks of a quoted title.
_QUOTES = re.compile(
    r"""
    "[^"]+" | “[^”]+” | „[^“”]+[“”] | «[^»]+» | (?<!\w)‘.+?’(?!\w) | (?<!\w)'\w.*?'(?!\w) | 「[^」]+」 | 『[^』]+』
    """,
    re.VERBOSE,
)
# Badly read CSV doubles the marks, and the single ones are then around the whole text.
_DOUBLED_QUOTES = re.compile('""[^"]+""')


def quoted_titles(words: Sequence[Word], text: str) -> list[Span]:
    """Return the quoted titles without their marks; a text that is quoted as a whole holds none."""
    result: list[Span] = []
    for match in (_DOUBLED_QUOTES if '""' in text else _QUOTES).finditer(text):
        inside = [word for word in words if match.start() <= word.span.start < match.end()]
        if inside and len(inside) < len(words):
            result.append(Span(inside[0].span.start, inside[-1].span.end))
    return result


def capitals_mark_names(words: Sequence[Word]) -> bool:
    """Tell whether capital letters mean something: not where every word has one."""
    cased = [word for word in words if word.text != word.text.swapcase()]
    return len(cased) <= 3 or not all(word.capitalised for word in cased)


def names(words: Sequence[Word]) -> list[Span]:
    """Return the runs of capitalised words, with particles and numbers inside.

    A function word at the start of a sentence does not begin a name.
    """
    result: list[Span] = []
    index = 0
    while index < len(words):
        if not _begins_name(words[index]):
            index += 1
            continue
        last = index
        while (following := _name_goes_on(words, last)) is not None:
            last = following
        if last > index and ":" in words[last].gap and not words[last].content:
            last -= 1  # "Lit: The band that …"
        result.append(Span(words[index].span.start, words[last].bare.end))
        index = last + 1
    return result


def _begins_name(word: Word) -> bool:
    return word.capitalised and word.text != "I" and (word.content or not word.starts_sentence)


def _name_goes_on(words: Sequence[Word], last: int) -> int | None:
    """Return the index of the name's next capitalised word or number after ``last``, or None where it ends."""
    for index in range(last + 1, min(last + 4, len(words))):
        word = words[index]
        if word.gap.strip() not in ("", "&", ":", "'") or word.starts_sentence:
            return None
        if word.capitalised or (word.numeric and index == last + 1):
            return index
        if word.lower not in PARTICLES:
            return None
    return None
