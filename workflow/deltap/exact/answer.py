"""The exact answer: the core phrase of an answer, found by rules that see the question but no gold answer.

True and false answers have to be read at the same kind of place, so nothing here may depend on what is right.

What is decided:

- A short answer is its own core, without marks and quotes around it, without lower-case articles and prepositions
  before it ("in 1972", "the liver"; "The Beatles" stays whole), and without an explanation behind it: a parenthesis,
  "which …", or what follows a comma unless it is of the same form ("Nashville, Tennessee", "red, white and blue").
- In a sentence the core is a phrase of words that the question does not have, of the kind that its question word asks
  for if there is one. The subject side of "is" gives way to the other side where it repeats the question.
- Where everything repeats the question, the repetition is the answer: its last phrase.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from deltap.exact.answer_kind import Kind, answer_kind
from deltap.exact.names import names, quoted_titles
from deltap.exact.spans import Span
from deltap.exact.words import COPULAS, FUNCTION_WORDS, PARTICLES, QUESTION_WORDS, Word, sentences, words_of

_LEAD_IN = re.compile(
    r"""
    (?: (?:(?:the|my|a|one|final|correct|right|short|possible) )* (?:answer|response) (?:(?:to|for) (?:your|the|this|that) question )? (?:is|would be|was)?
      | (?:i|we) (?:think|believe|guess|would say|am sure|know) (?:that )?
    )\s
    """,
    re.VERBOSE,
)
