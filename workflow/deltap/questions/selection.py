"""Which questions are asked, and in which split each of them stands."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from deltap.errors import DeltapError
from deltap.questions.hashes import question_hash, split_of
from deltap.questions.question import Question
from deltap.settings import SPLITS, QuestionSettings
from deltap.text import normalise


def only_yes_or_no(question: Question) -> bool:
    """Tell whether no gold answer says anything but yes or no."""
    return {normalise(answer) for answer in question.gold_answers} <= {"yes", "no", ""}


def distinct(questions: Iterable[Question]) -> tuple[list[Question], Counter[str]]:
    """Return one question for each normalised text, and how many others were dropped.

    Which one is kept does not depend on their order, and on their ids only where everything else is the same.
    Dropped are counted as ``duplicate``, or as ``same_question_other_answers``: the same words can ask about two
    subjects.
    """
    groups: dict[str, list[Question]] = {}
    for question in questions:
        groups.setdefault(question.words, []).append(question)
    kept, dropped = [], Counter[str]()
    for group in groups.values():
        first, *others = sorted(group, key=_content)
        kept.append(first)
        for other in others:
            same = other.gold_answers == first.gold_answers
            dropped["duplicate" if same else "same_question_other_answers"] += 1
    return kept, dropped


def _content(question: Question) -> tuple:
    named = (question.subject or "", question.property or "", question.question_type or "")
    popularity = -1.0 if question.popularity is None else question.popularity
    return (question.gold_answers, named, popularity, question.question, question.extra, question.question_id)


def sampled(questions: Iterable[Question], dataset: str, settings: QuestionSettings) -> list[dict[str, Any]]:
    """Return the sample as rows of the questions table, in the order of their hash.

    The sample are the questions with the smallest hashes; ``questions`` has each normalised text once.
    """
    hashed = sorted(
        (question_hash(settings.salt, dataset, question.words), question) for question in questions
    )
    key = _SPLIT_KEYS[settings.split_by]
    return [
        {
            **{name: getattr(question, name) for name in question.__slots__},
            "dataset": dataset,
            "split": split_of(settings.salt, dataset, key(question), settings.splits),
            "hash": digits,
        }
        for digits, question in hashed[: settings.number]
    ]


def _subject(question: Question) -> str:
    return normalise(question.subject or "") or question.words


_SPLIT_KEYS: Mapping[str, Callable[[Question], str]] = {
    "question": lambda question: question.words,
    "subject": _subject,
    "answer": lambda question: question.preferred_answer,
}


def split_sizes(rows: Iterable[Mapping[str, Any]], dataset: str) -> dict[str, int]:
    """Return the number of questions per split. Raises DeltapError where one has too few to go on with."""
    sizes = Counter(row["split"] for row in rows)
    found = {split: sizes[split] for split in SPLITS}
    if found["train"] < 2 or found["validation"] < 2 or found["test"] < 1:
        raise DeltapError(
            f"data set {dataset}: too few questions in a split: {listed(found)}; train and validation need 2 each and "
            "test 1. Ask more questions (questions.number, or a larger file), or set questions.splits, "
            "questions.split_by or questions.salt otherwise."
        )
    return found


def in_several_splits(rows: Iterable[Mapping[str, Any]]) -> dict[str, int]:
    """Return how many subjects and how many preferred answers, both normalised, stand in more than one split."""
    splits: dict[str, dict[str, set[str]]] = {"subjects": {}, "answers": {}}
    for row in rows:
        answer = next(words for words in map(normalise, row["gold_answers"]) if words)
        subject = normalise(row["subject"] or "")
        splits["answers"].setdefault(answer, set()).add(row["split"])
        if subject:
            splits["subjects"].setdefault(subject, set()).add(row["split"])
    return {kind: sum(len(found) > 1 for found in values.values()) for kind, values in splits.items()}


def listed(counts: Mapping[str, int]) -> str:
    """Return counts as ``train 50, validation 15, test 35``."""
    return ", ".join(f"{name} {count}" for name, count in counts.items())
