"""What kind of answer a question asks for, as far as its own words say so."""

from typing import Literal

from deltap.exact.names import names, quoted_titles
from deltap.exact.question_rules import asking_clause
from deltap.exact.words import QUESTION_WORDS, words_of

# A person is a name, and "by …" points at it.
Kind = Literal["person", "name", "date", "number", "any"]

_QUANTITIES = frozenset("many much old tall long far big high wide deep heavy large fast often".split())
_DATES = frozenset("year years date day month century decade birthday anniversary".split())
_NUMBERS = frozenset("number percentage percent population age height length distance temperature".split())
_PERSONS = frozenset(
    """
    author writer novelist poet playwright screenwriter director producer composer songwriter lyricist singer musician
    rapper guitarist drummer actor actress comedian father mother son daughter brother sister husband wife spouse king
    queen emperor pharaoh president chancellor minister politician scientist physicist chemist mathematician
    philosopher inventor explorer painter artist sculptor architect designer founder creator discoverer astronaut
    player footballer boxer golfer cricketer jockey character
    """.split()
)
_NAMES = frozenset(
    """
    country nation city town village state province county capital region continent island river lake sea ocean
    mountain desert planet team club band group company organisation organization university college school
    film movie book novel play poem opera musical song album single magazine newspaper show series title name surname
    nickname language
    """.split()
)


def answer_kind(question: str) -> Kind:
    """Return the kind of answer that the question word, or the noun after it, asks for."""
    words = words_of(question)
    quoted = quoted_titles(words, question)
    named = names([word for word in words if not any(word.span.overlaps(span) for span in quoted)])
    clause = [
        word
        for word in asking_clause(words, [*quoted, *named])
        if not any(word.span.overlaps(s) for s in quoted + named)
    ]
    asking = [index for index, word in enumerate(clause) if word.lower.removesuffix("'s") in QUESTION_WORDS]
    if not asking:
        return "any"
    after = [word for word in clause[asking[0] + 1 :]]
    match clause[asking[0]].lower.removesuffix("'s"):
        case "who" | "whom" | "whose":
            return "person"
        case "when":
            return "date"
        case "where":
            return "name"
        case "how":
            return "number" if after and after[0].lower in _QUANTITIES else "any"
        case "what" | "which":
            # The noun asked for is among the first words: "which former American president", "what is the capital".
            for word in [word for word in after if word.content][:2]:
                for kind, nouns in _NOUNS.items():
                    if word.lower in nouns or word.lower.removesuffix("s") in nouns:
                        return kind
    return "any"


_NOUNS: dict[Kind, frozenset[str]] = {"date": _DATES, "number": _NUMBERS, "person": _PERSONS, "name": _NAMES}
