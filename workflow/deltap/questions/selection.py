"""Which questions are asked, and in which split each of them stands."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import fields
from typing import Any, NamedTuple

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
        groups.setdefault(question.words(), []).append(question)
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


class Asked(NamedTuple):
    """A question of the sample."""

    question: Question
    split: str
    hash: str

    def row(self, dataset: str) -> dict[str, Any]:
        """Return the row of the questions table."""
        columns = {field.name: getattr(self.question, field.name) for field in fields(Question)}
        return {**columns, "dataset": dataset, "split": self.split, "hash": self.hash}


def sampled(questions: Iterable[Question], dataset: str, settings: QuestionSettings) -> list[Asked]:
    """Return the sample, the questions with the smallest hashes, in their order.

    ``questions`` has each normalised text once.
    """
    hashed = [(question_hash(settings.salt, dataset, question.words()), question) for question in questions]
    hashed.sort(key=lambda pair: pair[0])
    key = _SPLIT_KEYS[settings.split_by]
    return [
        Asked(question, split_of(settings.salt, dataset, key(question), settings.splits), digits)
        for digits, question in hashed[: settings.number]
    ]


_SPLIT_KEYS: Mapping[str, Callable[[Question], str]] = {
    "question": lambda question: question.words(),
    "subject": lambda question: question.subject_words() or question.words(),
    "answer": lambda question: question.preferred_answer(),
}


def split_sizes(sample: Iterable[Asked], dataset: str) -> dict[str, int]:
    """Return the number of questions per split. Raises DeltapError where one has too few to go on with."""
    sizes = Counter(asked.split for asked in sample)
    found = {split: sizes[split] for split in SPLITS}
    if found["train"] < 2 or found["validation"] < 2 or found["test"] < 1:
        raise DeltapError(
            f"data set {dataset}: too few questions in a split: {listed(found)}; train and validation need 2 each and "
            "test 1. Ask more questions (questions.number, or a larger file), or set questions.splits, "
            "questions.split_by or questions.salt otherwise."
        )
    return found


def in_several_splits(sample: Iterable[Asked]) -> dict[str, int]:
    """Return how many subjects and how many preferred answers, both normalised, stand in more than one split."""
    subjects: dict[str, set[str]] = {}
    answers: dict[str, set[str]] = {}
    for question, split, _ in sample:
        answers.setdefault(question.preferred_answer(), set()).add(split)
        if question.subject_words():
            subjects.setdefault(question.subject_words(), set()).add(split)
    return {
        "subjects": sum(len(splits) > 1 for splits in subjects.values()),
        "answers": sum(len(splits) > 1 for splits in answers.values()),
    }


def listed(counts: Mapping[str, int]) -> str:
    """Return counts as ``train 50, validation 15, test 35``."""
    return ", ".join(f"{name} {count}" for name, count in counts.items())
