"""Exact answer by rules: the core phrase of an answer, found by rules that see the question but no gold answer.

True and false answers have to be read at the same kind of place, so nothing here may depend on what is right.

What is decided:

- A short answer is its own core, without marks and quotes around it, without a preposition before it ("in 1972"), and
  without an explanation behind it: a parenthesis, "which …", or what follows a comma unless it is of the same form
  ("Nashville, Tennessee", "red, white and blue").
- In a sentence the core is a phrase of words that the question does not have, of the kind that its question word asks
  for if there is one. The subject side of "is" gives way to the other side where it repeats the question.
- Where everything repeats the question, the repetition is the answer: what is said about the subject, or all of it.
- An article or a name's particle before the core belongs to it ("the liver", "van Gogh"): gold answers have or lack it,
  and the longer text contains both.
"""

import re
from collections.abc import Sequence
from itertools import pairwise

from deltap.exact.answer_kind import Kind, answer_kind
from deltap.exact.answer_phrases import JOINS, Phrase, Piece, explains, is_verb, phrases, pieces_of, words_in
from deltap.exact.spans import Span
from deltap.exact.words import PARTICLES, Word, lexicon, sentences, words_of

# Matched against a sentence's words in lower case, a blank after each.
_LEAD_IN = re.compile(
    r"(?:(?:the|my|an?|one|short|brief|final|correct|right|possible) )*(?:answer|response|output) "
    r"(?:(?:to|for) (?:your|the|this|that) question )?(?:is |are |was |would be )?(?:that )?"
    r"|(?:i|we) (?:think|believe|guess|suppose|know|would say) (?:that )?"
)
_INTERJECTIONS = lexicon("yes no yeah yep nope sure certainly absolutely correct well ok okay a ans q hello hi")
_LIST_MARK = re.compile(r"[.)]\s")
_EMPHASIS = re.compile(r"\*\*(.+?)\*\*")
_MONTH_NAME = "(?:January|February|March|April|May|June|July|August|September|October|November|December)"
_MONTH = rf"(?:{_MONTH_NAME}|(?:jan|feb|mar|apr|jun|jul|aug|sept?|oct|nov|dec)\b\.?)"
_DAY = r"\d{1,2}(?:st|nd|rd|th)?\b"
_ERA = r"(?:AD|BCE?|CE)\b"
_DATE = re.compile(
    rf"""\b (?:
        \d{{4}}-\d\d-\d\d\b
      | {_DAY} \s+ (?:of\s+)? {_MONTH} (?:,?\s+\d{{3,4}}\b)?
      | {_MONTH} \s+ {_DAY} (?:,?\s+\d{{3,4}}\b)?
      | {_MONTH} ,?\s+ \d{{3,4}}\b
      | {_DAY} \s+ century (?:\s{_ERA})?
      | \d{{3,4}}s? (?:[–-]\d{{2,4}})? (?:\s?{_ERA}|\b)
      | \d{{1,2}} \s? {_ERA}
      | (?-i:{_MONTH_NAME}) \b
    )""",
    re.VERBOSE | re.IGNORECASE,
)
_NUMBER_WORDS = lexicon("""
    zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen
    eighteen nineteen twenty thirty forty fifty sixty seventy eighty ninety hundred thousand million billion trillion
    dozen half
    """)
_ARTICLES = PARTICLES - lexicon("of v vs n i e y") | {"a", "an"}
_PRONOUNS = lexicon("it he she they this that there")
_TIME_AND_PLACE = lexicon("in on at from during")
# A statement of so many words without a verb is its own core, even if it repeats words of the question.
_SHORT = 4


def span_by_rules(answer: str, question: str) -> Span | None:
    """Return the span of the answer's core phrase, or None where the answer has no letter and no digit."""
    words = words_of(answer)
    if not words:
        return None
    kind = answer_kind(question)
    if kind == "yes_no" and words[0].lower in ("yes", "no"):
        return words[0].span
    statements = [pieces_of(statement, answer) for statement in _statements(words, answer)]
    return _with_article(_core(statements, kind, _known(question), answer), words)


def _with_article(core: Span, words: Sequence[Word]) -> Span:
    """Return the core with the article or particle before it."""
    before = [(word, following) for word, following in pairwise(words) if following.span.start == core.start]
    if before and before[0][0].lower in _ARTICLES and not before[0][1].gap.strip():
        return Span(before[0][0].span.start, core.end)
    return core


def _core(statements: Sequence[Sequence[Piece]], kind: Kind, known: set[str], answer: str) -> Span:
    """Return the core of an answer that has a word."""
    if _is_phrase(statements[0], known):
        return _span(_without_surroundings(statements[0], kind))
    for pieces in statements:
        if span := _core_of_kind(pieces, kind, known, answer):
            return span
    every = [phrase for pieces in statements for phrase in _in_order(phrases(pieces), known)]
    new = [core for phrase in every if (core := _new_part(phrase, known))]
    # "It was rebuilt in Rome": a verb alone is the core only where there is nothing else.
    new.sort(key=lambda core: len(core) == 1 and core[0].lower.endswith("ed"))
    return _span(next(iter([*new, *(phrase.pieces for phrase in every), statements[0]])))


def _known(question: str) -> set[str]:
    """Return the stems of the question's content words, without names offered for choice ("Lit or Adorable?")."""
    pieces = pieces_of(words_of(question), question)
    choices = {near for index, piece in enumerate(pieces) if piece.lower == "or" for near in (index - 1, index + 1)}
    return {
        _stem(word)
        for index, piece in enumerate(pieces)
        if not (piece.whole and index in choices)
        for word in piece.words
        if word.content
    }


def _statements(words: Sequence[Word], answer: str) -> list[Sequence[Word]]:
    """Return the answer's sentences without their lead-ins, or what it emphasises itself.

    A sentence that is a lead-in alone ("Sure!") counts only where there is nothing else.
    """
    for match in _EMPHASIS.finditer(answer):
        emphasised = [word for word in words if match.start() < word.span.start < match.end()]
        if body := _without_lead_in(emphasised):
            return [body]
    marks = [index for index, word in enumerate(words[:-1]) if _marks_item(word, words[index + 1])]
    parts = sentences([word for index, word in enumerate(words) if index not in marks] if marks else words)
    bodies = [_without_lead_in(part) for part in parts]
    return [body for body in bodies if body] or [parts[0]]


def _marks_item(word: Word, following: Word) -> bool:
    """Tell whether ``word`` is the number of a list's item ("1. Paris")."""
    return word.text.isdigit() and word.starts_sentence and bool(_LIST_MARK.match(following.gap))


def _without_lead_in(words: Sequence[Word]) -> Sequence[Word]:
    """Return the words behind "The answer is", "Yes," and the like."""
    while words:
        sign = words[1].gap.strip(" *\"'“‘") if len(words) > 1 else "."
        if match := _LEAD_IN.match("".join(f"{word.lower} " for word in words)):
            words = words[match.group().count(" ") :]
        elif words[0].lower in _INTERJECTIONS and sign:
            words = words[1:]
        else:
            break
    return words


def _is_phrase(pieces: Sequence[Piece], known: set[str]) -> bool:
    """Tell whether a statement is a phrase rather than a sentence."""
    if any(is_verb(piece) for piece in pieces) or (pieces[0].lower in _PRONOUNS and pieces[1:] and not pieces[1].whole):
        return False
    words = words_in(pieces)
    return len(words) <= _SHORT or not any(_stem(word) in known for word in words)


def _without_surroundings(pieces: Sequence[Piece], kind: Kind) -> Sequence[Piece]:
    """Return a phrase without articles and prepositions before it and explanations behind it."""
    ends = [
        index
        for index in range(1, len(pieces))
        if explains(pieces, index)
        or (kind == "person" and pieces[index - 1].whole and pieces[index].lower in _TIME_AND_PLACE)
    ]
    core = list(pieces[: min(ends, default=len(pieces))])
    while len(core) > 1 and core[0].edge and not _begins_title(core, kind):
        del core[0]
    while len(core) > 1 and core[-1].edge and not core[-1].words[0].capitalised:
        del core[-1]
    return core


def _begins_title(pieces: Sequence[Piece], kind: Kind) -> bool:
    """Tell whether a phrase's first word belongs to its name: "The Beatles", but "In Paris" where a place is asked."""
    outside = pieces[0].lower in _TIME_AND_PLACE and (pieces[1].words[0].numeric or kind in ("date", "place"))
    return pieces[0].words[0].capitalised and pieces[1].whole and not outside


def _core_of_kind(pieces: Sequence[Piece], kind: Kind, known: set[str], text: str) -> Span | None:
    """Return the part of a sentence that is new and of the kind asked for, or None."""
    if kind == "date":
        return _date(words_in(pieces), known, text)
    # A subject that repeats the question ("The author of the novel Emma is unknown") does not answer it.
    found = [phrase for phrase in _in_order(phrases(pieces), known) if phrase.predicate or not _repeats(phrase, known)]
    if kind == "number":
        runs = [_without_ends(_from_number(phrase.pieces), known) for phrase in found]
    elif kind in ("person", "place", "name"):
        if kind == "person":  # rather behind "by" than anywhere, and not where times and places stand
            found = [phrase for phrase in found if phrase.after not in _TIME_AND_PLACE]
            found.sort(key=lambda phrase: phrase.after != "by")
        runs = [_names_at_end(phrase.pieces) for phrase in found]
    else:
        runs = []
    return next((_span(run) for run in runs if _is_new(run, known)), None)


def _in_order(found: list[Phrase], known: set[str]) -> list[Phrase]:
    """Return the phrases in the order in which the core is looked for.

    Where the sentence's subject repeats the question ("Germany's capital is …"), what is said about it comes first.
    """
    subject = [phrase for phrase in found if not phrase.predicate]
    predicate = [phrase for phrase in found if phrase.predicate]
    repeats = any(_repeats(phrase, known) for phrase in subject)
    return [*predicate, *subject] if repeats else [*subject, *predicate]


def _repeats(phrase: Phrase, known: set[str]) -> bool:
    return any(_stem(word) in known for word in words_in(phrase.pieces))


def _date(words: Sequence[Word], known: set[str], text: str) -> Span | None:
    """Return the first date that the question does not hold."""
    start, end = words[0].span.start, words[-1].span.end
    for match in _DATE.finditer(text, start, end):
        inside = [word for word in words if match.start() <= word.span.start < match.end()]
        if any(_stem(word) not in known for word in inside):
            return Span(*match.span())
    return None


def _from_number(pieces: Sequence[Piece]) -> Sequence[Piece]:
    """Return a phrase from its first number on, unit included ("16", "two million years")."""
    for index, piece in enumerate(pieces):
        if piece.words[0].numeric or piece.words[0].lower in _NUMBER_WORDS:
            return pieces[index:]
    return []


def _names_at_end(pieces: Sequence[Piece]) -> list[Piece]:
    """Return the names that end a phrase ("French composer Claude Debussy", "Crick and Watson")."""
    start = len(pieces)
    while start > 0 and (pieces[start - 1].whole or (start < len(pieces) and pieces[start - 1].lower in JOINS)):
        start -= 1
    named = any(word.capitalised for word in words_in(pieces[start:]))
    return [piece for index, piece in enumerate(pieces[start:]) if named and (index or piece.whole)]


def _new_part(phrase: Phrase, known: set[str]) -> Sequence[Piece]:
    """Return the part of a phrase that the question does not have, or nothing.

    A name from the question with another word behind it is the sentence's subject and its verb ("the Mary Rose sank").
    """
    pieces = phrase.pieces
    if not phrase.predicate and len(pieces) > 1 and pieces[0].whole and not pieces[1].whole:
        pieces = pieces if _is_new(pieces[:1], known) else pieces[2:]
    return _without_ends(pieces, known)


def _without_ends(pieces: Sequence[Piece], known: set[str]) -> Sequence[Piece]:
    """Return a phrase without words at its ends that repeat the question, or nothing where all of it does."""
    core = list(pieces)
    for end in (0, -1):
        while core and not core[end].whole and (core[end].edge or not _is_new([core[end]], known)):
            del core[end]
    return core if _is_new(core, known) else []


def _is_new(pieces: Sequence[Piece], known: set[str]) -> bool:
    return any(word.content and _stem(word) not in known for word in words_in(pieces))


def _stem(word: Word) -> str:
    """Return the word without the commonest English endings, so that "played" repeats "play"."""
    stem = word.lower.removesuffix("'s")
    for ending in ("ing", "ed", "es", "s"):
        if stem.endswith(ending) and len(stem) - len(ending) >= 3:
            stem = stem.removesuffix(ending)
            break
    return stem.removesuffix("e")


def _span(pieces: Sequence[Piece]) -> Span:
    words = words_in(pieces)
    return Span(words[0].span.start, words[-1].span.end)
