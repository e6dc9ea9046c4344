"""What kind of answer a question asks for, as far as its own words say so."""

from typing import Literal

from deltap.exact.question_rules import asking_clause, titles_and_names
from deltap.exact.words import QUESTION_WORDS, lexicon, words_of

# A person and a place are names too: "by …" points at the one, and "in …" stands before the other.
Kind = Literal["person", "place", "name", "date", "number", "yes_no", "any"]

_AUXILIARIES = lexicon("is are was were do does did has have had can could will would should")
_QUANTITIES = lexicon("many much old tall long far big high wide deep heavy large fast often")
_DATES = lexicon("year years date day month century decade birthday anniversary")
_NUMBERS = lexicon("number percentage percent population age height length distance temperature")
_PERSONS = lexicon("""
    author writer novelist poet playwright screenwriter director producer composer songwriter lyricist singer musician
    rapper guitarist drummer actor actress comedian father mother son daughter brother sister husband wife spouse king
    queen emperor pharaoh president chancellor minister politician scientist physicist chemist mathematician
    philosopher inventor explorer painter artist sculptor architect designer founder creator discoverer astronaut
    player footballer boxer golfer cricketer jockey character
    """)
_NAMES = lexicon("""
    country nation city town village state province county capital region continent island river lake sea ocean
    mountain desert planet constellation bridge building street airport stadium castle palace museum church temple
    team club band group company firm airline brand label organisation organization party university college school
    film movie book novel play poem opera musical song album single magazine newspaper show series franchise title name
    surname nickname language war battle dynasty
    """)

_NOUNS: dict[Kind, frozenset[str]] = {"date": _DATES, "number": _NUMBERS, "person": _PERSONS, "name": _NAMES}


def answer_kind(question: str) -> Kind:
    """Return the kind of answer that the question word, or the noun after it, asks for."""
    words = words_of(question)
    taken = titles_and_names(words, question)
    clause = [word for word in asking_clause(words, taken) if not any(word.span.overlaps(span) for span in taken)]
    asking = [index for index, word in enumerate(clause) if word.lower.removesuffix("'s") in QUESTION_WORDS]
    if not asking:
        return "yes_no" if words and words[0].lower in _AUXILIARIES else "any"
    after = clause[asking[0] + 1 :]
    match clause[asking[0]].lower.removesuffix("'s"):
        case "who" | "whom" | "whose":
            return "person"
        case "when":
            return "date"
        case "where":
            return "place"
        case "how":
            return "number" if after and after[0].lower in _QUANTITIES else "any"
        case "what" | "which":
            # The noun asked for is among the first words: "which former American president", "what is the capital".
            for word in [word for word in after if word.content][:2]:
                for kind, nouns in _NOUNS.items():
                    if word.lower in nouns or word.lower.removesuffix("s") in nouns:
                        return kind
    return "any"
