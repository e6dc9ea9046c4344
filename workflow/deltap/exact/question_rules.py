"""Exact question by rules: quoted titles, names, numbers, and the words that ask for the property.

Knows English question words and function words, and no data set's templates.
"""

import re
from collections.abc import Sequence

from deltap.exact.names import capitals_mark_names, names, quoted_titles
from deltap.exact.spans import Span, merged
from deltap.exact.words import QUESTION_WORDS, Word, lexicon, words_of
from deltap.text import is_unspaced

# Where one clause ends and the next begins.
_CLAUSE_SIGN = re.compile(r"[,;:—()]|\s[–-]\s")
_PARENTHESIS = re.compile(r"\s?\([^()]*\)")
_CLAUSE_WORDS = QUESTION_WORDS | lexicon("that while because after before since if although though whilst")
# "Name the author of …" asks like a question word.
_IMPERATIVES = lexicon("name list give tell identify complete find")


def spans_by_rules(question: str) -> tuple[Span, ...]:
    """Return the spans of a question's core frame elements, in order and apart from each other.

    These are its quoted titles, names and numbers, and the content words of the clause that asks; where there is
    neither title nor name, as in questions without capital letters, all content words. A text with a word has a
    span, and one with several words has one outside.
    """
    words = words_of(question)
    if len(words) > 1 and words[0].lower in _IMPERATIVES:
        words = words[1:]
    taken = titles_and_names(words, question)
    free = [word for word in words if not _inside(word, taken)]
    asking = asking_clause(words, taken) if taken else words
    plain = [word.bare for word in free if word.numeric or (word in asking and word.content)]
    spans = merged([*taken, *plain], question)
    return _leave_a_word(spans or merged([word.span for word in words[-1:]], question), words)


def titles_and_names(words: Sequence[Word], question: str) -> list[Span]:
    """Return the spans of a question's quoted titles and names, a name with the parenthesis after it."""
    titles = quoted_titles(words, question)
    unquoted = [word for word in words if not _inside(word, titles)]
    found = names(unquoted) if capitals_mark_names(unquoted) else []
    return [*titles, *(_with_parenthesis(name, question) for name in found)]


def _with_parenthesis(name: Span, question: str) -> Span:
    """Return the span of a name with the parenthesis after it, as in "Reading Capital (work level)"."""
    match = _PARENTHESIS.match(question, name.end)
    return Span(name.start, match.end()) if match else name


def asking_clause(words: Sequence[Word], taken: Sequence[Span]) -> Sequence[Word]:
    """Return the words of the clause that asks, or all words where none does or the clause says nothing of its own.

    Words inside the spans ``taken`` (titles, names) neither ask nor count: "What, in Portugal, are azulejos?"
    """
    asking = _asking_word(words, taken)
    if asking is None:
        return words
    begins = [
        index
        for index, word in enumerate(words)
        if _begins_clause(word) or (index != asking and word.lower in _CLAUSE_WORDS)
    ]
    start = max([index for index in begins if index <= asking], default=0)
    end = min([index for index in begins if index > asking], default=len(words))
    clause = words[start:end]
    return clause if any(word.content and not _inside(word, taken) for word in clause) else words


def _inside(word: Word, spans: Sequence[Span]) -> bool:
    return any(word.span.overlaps(span) for span in spans)


def _begins_clause(word: Word) -> bool:
    return word.starts_sentence or bool(_CLAUSE_SIGN.search(word.gap))


def _asking_word(words: Sequence[Word], taken: Sequence[Span]) -> int | None:
    """Return the index of the question word that asks, rather than joins a clause to a noun."""
    candidates = [
        index
        for index, word in enumerate(words)
        if word.lower.removesuffix("'s") in QUESTION_WORDS and not _inside(word, taken)
    ]
    # "In which …" starts its sentence too.
    at_start = [
        index for index in candidates if any(word.starts_sentence for word in words[max(index - 1, 0) : index + 1])
    ]
    never_joins = [index for index in candidates if words[index].lower in ("what", "how", "why")]
    after_comma = [index for index in candidates if "," in words[index].gap]
    return next((found[-1] for found in (at_start, never_joins, after_comma, candidates) if found), None)


def _leave_a_word(spans: tuple[Span, ...], words: Sequence[Word]) -> tuple[Span, ...]:
    """Return the spans without one word, where they cover several words and all there are.

    That happens in other languages. The question word comes first in most of them, and late in those whose scripts
    have no blanks.
    """
    covered = all(any(span.start <= word.span.start < span.end for span in spans) for word in words)
    if len(words) < 2 or not covered:
        return spans
    first, last = (0, -2) if is_unspaced(words[-1].text) else (1, -1)
    kept = Span(words[first].span.start, words[last].span.end)
    return tuple(Span(max(span.start, kept.start), min(span.end, kept.end)) for span in spans if span.overlaps(kept))
