"""Exact tokens by a language model, which copies them word for word from question and answer.

It sees no gold answer and no label. A reply that does not stand in the text word for word is refused.
"""

from collections.abc import Mapping, Sequence
from itertools import takewhile
from pathlib import Path
from typing import Any

from deltap.exact.answer import ORDER as answer_order
from deltap.exact.answer import answer_span
from deltap.exact.found import NamedSpans, spans_of_phrases
from deltap.exact.question import ORDER as question_order
from deltap.exact.question import question_spans
from deltap.given import Given
from deltap.llm.ask import Progress, Refused, Replier, Task, ask, read_object
from deltap.named import Named
from deltap.settings import Extractor
from deltap.tables import SPANS, read_table

QUESTION = Task(
    instruction=(
        "Name the core frame elements of a question: its subject, which is the entity that it asks about, and the "
        "property of the subject that it asks for. Copy both word for word from the question. Reply with JSON only, "
        'such as {"subject": "Marseille", "property": "country"}, with null for what the question does not name.'
    ),
    examples=(
        ("In which country is the city of Marseille?", '{"subject": "Marseille", "property": "country"}'),
        ("Who wrote the play Hamlet?", '{"subject": "Hamlet", "property": "wrote"}'),
        ("What is Ada Lovelace's occupation?", '{"subject": "Ada Lovelace", "property": "occupation"}'),
        ("when did the battle of hastings take place", '{"subject": "battle of hastings", "property": "when"}'),
        ("What is the chemical symbol for iron?", '{"subject": "iron", "property": "chemical symbol"}'),
    ),
)
ANSWER = Task(
    instruction=(
        "A question got a reply. Name the core of the reply: the entity, number or phrase that answers the question, "
        "without lead-in, explanation and punctuation. It does not matter whether the reply is right. Copy the core "
        "word for word from the reply. Answer with JSON only, such as "
        '{"core": "Victor Hugo"}, with null where there is none.'
    ),
    examples=(
        ("Who wrote Les Misérables?\nReply: It was written by Victor Hugo in 1862.", '{"core": "Victor Hugo"}'),
        ("What is the capital of Japan?\nReply: Kyoto", '{"core": "Kyoto"}'),
        ("How many legs does a spider have?\nReply: A spider has eight legs.", '{"core": "eight"}'),
        ("What color is gold?\nReply: The answer is yellow, like the sun.", '{"core": "yellow"}'),
    ),
)


def find_spans(
    replier: Replier,
    samples: Sequence[Mapping[str, Any]],
    extractor: Extractor,
    given: Given[NamedSpans],
    progress: Progress,
) -> list[NamedSpans]:
    """Return what a language model names of each question and answer that nobody before it in the order knows.

    ``samples`` have ``question_id, question, subject, property, answer``. Nothing is named where the replies cannot be
    used. ``progress`` is told the number of texts done, of two for each sample.
    """
    named = Named(given)
    asked_questions = [i for i, sample in enumerate(samples) if not _question_known(sample, named, extractor)]
    asked_answers = [
        i for i, sample in enumerate(samples) if sample["answer"] and not _answer_known(sample, named, extractor)
    ]
    progress(2 * len(samples) - len(asked_questions) - len(asked_answers))
    of_questions = ask(
        replier,
        QUESTION,
        [samples[index]["question"] for index in asked_questions],
        lambda place, reply: read_question(reply, samples[asked_questions[place]]["question"]),
        progress,
    )
    of_answers = ask(
        replier,
        ANSWER,
        [f"{samples[index]['question']}\nReply: {samples[index]['answer']}" for index in asked_answers],
        lambda place, reply: read_answer(reply, samples[asked_answers[place]]["answer"]),
        progress,
    )
    by_question = dict(zip(asked_questions, of_questions, strict=True))
    by_answer = dict(zip(asked_answers, of_answers, strict=True))
    return [NamedSpans(by_question.get(index) or (), by_answer.get(index)) for index in range(len(samples))]


def _question_known(sample: Mapping[str, Any], named: Named, extractor: Extractor) -> bool:
    """Tell whether somebody whom the extractor asks before the language model finds the exact question."""
    question, phrases = sample["question"], named.question(sample)
    return any(
        question_spans(source, question, sample["subject"], sample["property"], phrases)
        for source in takewhile(lambda source: source != "llm", question_order[extractor])
    )


def _answer_known(sample: Mapping[str, Any], named: Named, extractor: Extractor) -> bool:
    """Tell whether somebody whom the extractor asks before the language model finds the exact answer."""
    answer, question = sample["answer"], sample["question"]
    return any(
        answer_span(source, answer, question, named.answer(sample, answer))
        for source in takewhile(lambda source: source != "llm", answer_order[extractor])
    )


def read_question(reply: str, question: str) -> tuple[str, ...]:
    """Return the phrases of a reply, each of which stands in the question word for word. Raises Refused otherwise."""
    value = read_object(reply)
    phrases = tuple(_phrase(value.get(name), name) for name in ("subject", "property"))
    named = tuple(phrase for phrase in phrases if phrase)
    if not named:
        raise Refused("it names neither subject nor property")
    for phrase in named:
        if not spans_of_phrases((phrase,), question):
            raise Refused(f"{phrase!r} does not stand in the question word for word")
    return named


def read_answer(reply: str, answer: str) -> str:
    """Return the phrase of a reply, which stands in the answer word for word. Raises Refused otherwise."""
    phrase = _phrase(read_object(reply).get("core"), "core")
    if not phrase:
        raise Refused("it names no core")
    if not spans_of_phrases((phrase,), answer):
        raise Refused(f"{phrase!r} does not stand in the reply word for word")
    return phrase


def _phrase(value: Any, name: str) -> str:
    if value is not None and not isinstance(value, str):
        raise Refused(f"{name} is no text")
    return (value or "").strip()


def read_llm_spans(path: Path, asked: Sequence[Mapping[str, Any]]) -> dict[str, NamedSpans]:
    """Return what a SPANS table names, by question id, of the questions ``asked``."""
    wanted = {question["question_id"] for question in asked}
    return {
        row["question_id"]: NamedSpans(tuple(row["exact_question"] or ()), row["exact_answer"])
        for row in read_table(path, SPANS).to_pylist()
        if row["question_id"] in wanted
    }
