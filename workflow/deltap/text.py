"""Comparing texts: normalisation and matching on word boundaries, for any script."""

import re
import unicodedata
from functools import lru_cache

# Scripts written without blanks between words: each of their characters counts as a word.
_UNSPACED = re.compile(
    "([\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff])"
)


@lru_cache(maxsize=100_000)
def normalise(text: str) -> str:
    """Return ``text`` as words in lower case with single blanks between them.

    Compatibility forms are unified (NFKC) and case is folded; everything that is neither letter, digit nor
    combining mark becomes a blank. Accents stay: ``"Kraków!"`` gives ``"kraków"``. Symbols and emoji alone give "".
    """
    folded = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text).casefold())
    words = "".join(character if unicodedata.category(character)[0] in "LNM" else " " for character in folded)
    return " ".join(_UNSPACED.sub(r" \1 ", words).split())


def contains(text: str, phrase: str) -> bool:
    """Tell whether ``phrase`` stands in ``text`` on word boundaries, after normalisation of both.

    "Iran" does not stand in "Tirana", and a phrase that normalises to nothing stands nowhere.
    """
    wanted = normalise(phrase)
    return bool(wanted) and f" {wanted} " in f" {normalise(text)} "


def is_unspaced(character: str) -> bool:
    """Tell whether ``character`` belongs to a script written without blanks, where it counts as a word."""
    return bool(_UNSPACED.match(character))


def is_boundary(text: str, index: int) -> bool:
    """Tell whether a word may begin or end before ``text[index]``."""
    around = text[index - 1 : index + 1] if 0 < index < len(text) else ""
    return not around or any(
        unicodedata.category(character)[0] not in "LNM" or is_unspaced(character) for character in around
    )
