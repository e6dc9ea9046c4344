"""Labels by a language model, which compares an answer with the gold answers."""

from collections.abc import Mapping, Sequence
from typing import Any

from deltap.llm.ask import Progress, Refused, Replier, Task, ask, read_object
from deltap.settings import HALLUCINATED, TRUTHFUL

_GOLD_ANSWERS = 20  # some data sets list dozens of spellings

JUDGE = Task(
    instruction=(
        "A question got a reply. Is the reply right? It is right if it means the same as one of the right answers, in "
        "whatever words, and wrong if it says something else or more than is right. Answer with JSON only: "
        '{"right": true} or {"right": false}.'
    ),
    examples=(
        ("Who wrote Hamlet?\nReply: W. Shakespeare\nRight answers: William Shakespeare", '{"right": true}'),
        ("What is the capital of Japan?\nReply: Kyoto\nRight answers: Tokyo; Tokyo City", '{"right": false}'),
        ("In what year did the war end?\nReply: It ended in 1945.\nRight answers: 1945", '{"right": true}'),
        ("What sport does he play?\nReply: tennis\nRight answers: association football; soccer", '{"right": false}'),
    ),
)


def judge(replier: Replier, answers: Sequence[Mapping[str, Any]], progress: Progress) -> list[str | None]:
    """Return the label of each answer, None where the replies cannot be used.

    ``answers`` have ``question, answer, gold_answers``. ``progress`` is told the number of answers done.
    """
    texts = [
        f"{row['question']}\nReply: {row['answer']}\nRight answers: {'; '.join(row['gold_answers'][:_GOLD_ANSWERS])}"
        for row in answers
    ]
    return ask(replier, JUDGE, texts, lambda _, reply: read_judgement(reply), progress)


def read_judgement(reply: str) -> str:
    """Return the label that a reply gives. Raises Refused for one that gives none."""
    right = read_object(reply).get("right")
    if not isinstance(right, bool):
        raise Refused('"right" is neither true nor false')
    return TRUTHFUL if right else HALLUCINATED
