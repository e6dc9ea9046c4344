"""Refusals: answers that say that there is no answer."""

import re

from deltap.exact.words import sentences, words_of

_UNKNOWN = (
    r"(?:unknown|unclear|uncertain|unspecified|unidentified|undetermined"
    r"|not (?:\w+ly )?(?:known|clear|specified|mentioned|stated|provided|given|available|disclosed|identified|listed))"
)
# How a sentence begins that refuses to answer, whatever follows; and what a refusal says as a whole. The sentence's
# words are compared with one blank between them, the first in lower case and the others as they are written, so that
# the title "I Don't Know How She Does It" is no refusal.
_REFUSAL = re.compile(
    "|".join(
        (
            r"(?:well )?[iI](?:'m| am) (?:really |very |so )?(?:sorry|afraid|unsure|unable|unaware)\b.*",
            r"(?:well )?[iI](?:'m| am) not (?:\w+ly )?(?:sure|certain|aware|able|familiar)\b.*",
            r"(?:well )?[iI] (?:\w+ly |just )?(?:do not|don't|cannot|can't|can not|could not|couldn't|am not able to) "
            r"(?:\w+ly )?(?:know|have|answer|provide|find|determine|tell|say|recall|remember|help|identify|give)\b.*",
            r"sorry(?: (?:but|I|I'm|we)\b.*)?",
            r"(?:my apologies|i apologi[sz]e)\b.*",
            r"(?:i have |there is )?no (?:idea|answer|clue)\b.*",
            r"as an? (?:AI|ai|artificial intelligence|language model|large language model|assistant)\b.*",
            r"unfortunately\b.*",
            r"(?:there is |there's )?(?:no|not enough|insufficient) (?:\w+ )?(?:information|record|data|evidence)\b.*",
            r"(?:it is |it's )?(?:impossible|not possible) to (?:say|know|tell|determine|answer)\b.*",
            r"(?:the|this|your) (?:given |provided )?(?:text|passage|question|context|information|prompt|sentence) "
            r"(?:provided |given )?(?:does not|doesn't|did not|didn't)\b.*",
            r"n/a|not applicable",
            rf"(?:it's )?{_UNKNOWN}",
            rf".+ (?:is|was|are|were|remains) (?:still |currently )?{_UNKNOWN}(?: (?:in|by|from) (?:the|any)\b.*)?",
        )
    )
)


def refuses(answer: str) -> bool:
    """Tell whether the first sentence of ``answer`` is a refusal, or begins like one."""
    words = words_of(answer)
    if not words:
        return False
    first, *others = sentences(words)[0]
    return bool(_REFUSAL.fullmatch(" ".join([first.lower, *(word.text.replace("’", "'") for word in others)])))
