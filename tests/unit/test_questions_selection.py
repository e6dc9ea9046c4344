"""Which questions are asked, in which split and by which job."""

import hashlib
import json
import random
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deltap.errors import DeltapError
from deltap.questions.hashes import question_hash, split_of
from deltap.questions.question import Question
from deltap.questions.selection import (
    Asked,
    distinct,
    in_several_splits,
    only_yes_or_no,
    sampled,
    split_sizes,
)
from deltap.settings import SPLITS, QuestionSettings, Splits
from deltap.text import normalise


def question(text: str, *answers: str, **columns: Any) -> Question:
    return Question(columns.pop("question_id", f"id of {text}"), text, answers or ("a",), **columns)


def settings(**keys: Any) -> QuestionSettings:
    return QuestionSettings(**keys)


QUESTIONS = [
    question(f"Question {number}?", f"Answer {number % 7}", subject=f"S{number % 11}") for number in range(120)
]
orders = st.randoms(use_true_random=False).map(lambda rng: rng.sample(QUESTIONS, len(QUESTIONS)))


def test_the_hash_is_the_sha256_of_salt_data_set_and_words() -> None:
    expected = hashlib.sha256(json.dumps(["salt", "popqa", "who"], separators=(",", ":")).encode()).hexdigest()
    assert question_hash("salt", "popqa", "who") == expected[:16]
    assert len({question_hash(*parts) for parts in (("ab", "c", "d"), ("a", "bc", "d"), ("a", "b", "cd"))}) == 3


@given(orders, st.integers(1, 120), st.integers(1, 120))
def test_order_of_the_file_and_size_of_the_sample_move_nothing(order: list[Question], few: int, many: int) -> None:
    few, many = sorted((few, many))
    small = sampled(order, "popqa", settings(number=few))
    large = sampled(QUESTIONS, "popqa", settings(number=many))
    assert large[:few] == small
    assert len(small) == few
    digits = [asked.hash for asked in large]
    assert digits == sorted(digits)


def test_more_questions_than_there_are_and_null_ask_all() -> None:
    everything = sampled(QUESTIONS, "popqa", settings(number=None))
    assert len(everything) == 120
    assert sampled(QUESTIONS, "popqa", settings(number=1000)) == everything


@given(st.sampled_from(["question", "subject", "answer"]), st.sampled_from(["ß?", " SS ", "ss"]))
def test_spelling_ids_and_other_columns_move_nothing(split_by: str, spelling: str) -> None:
    plain = question("Where is ss", "ss", subject="ss", question_id="1")
    other = question(f"WHERE is {spelling}", f"{spelling}!", subject=f"({spelling})", question_id="test_1", extra="{}")
    first, second = (sampled([one], "set", settings(split_by=split_by))[0] for one in (plain, other))
    assert (first.split, first.hash) == (second.split, second.hash)


def test_another_salt_or_data_set_gives_another_sample_and_split() -> None:
    def drawn(dataset: str, salt: str) -> list[tuple[str, str]]:
        return [(a.question.question, a.split) for a in sampled(QUESTIONS, dataset, settings(number=40, salt=salt))]

    draws = [drawn("popqa", ""), drawn("popqa", "1"), drawn("nq", "")]
    for other in (1, 2):
        assert {text for text, _ in draws[0]} != {text for text, _ in draws[other]}
        splits = dict(draws[0])
        assert any(splits[text] != split for text, split in draws[other] if text in splits)


@pytest.mark.parametrize(
    ("split_by", "key"),
    [
        ("subject", lambda asked: asked.question.subject),
        ("answer", lambda asked: asked.question.gold_answers[0]),
        ("question", lambda asked: asked.question.question),
    ],
)
def test_what_is_split_by_never_stands_in_two_splits(split_by: str, key: Any) -> None:
    sample = sampled(QUESTIONS, "popqa", settings(split_by=split_by))
    splits: dict[str, set[str]] = {}
    for asked in sample:
        splits.setdefault(key(asked), set()).add(asked.split)
    assert all(len(found) == 1 for found in splits.values())
    overlap = in_several_splits(sample)
    assert overlap["subjects"] == (0 if split_by == "subject" else 11)
    assert overlap["answers"] == (0 if split_by == "answer" else 7)


def test_a_question_without_a_subject_is_split_by_itself() -> None:
    without = [question(f"q{number}") for number in range(50)]
    by_subject, by_question = (
        [asked.split for asked in sampled(without, "nq", settings(split_by=kind))] for kind in ("subject", "question")
    )
    assert by_subject == by_question
    assert set(by_subject) == set(SPLITS)


def test_a_preferred_answer_without_letters_leaves_the_next_one_to_split_by() -> None:
    emoji = sampled([question("q", "🇿🇦", "South Africa")], "set", settings(split_by="answer"))[0]
    assert emoji.split == split_of("", "set", "south africa", Splits())
    assert emoji.question.preferred_answer() == "south africa"


def test_splits_have_the_configured_shares() -> None:
    shares = Splits(train=0.2, validation=0.3, test=0.5)
    splits = [split_of("", "set", str(number), shares) for number in range(20_000)]
    for split, share in (("train", 0.2), ("validation", 0.3), ("test", 0.5)):
        assert splits.count(split) / len(splits) == pytest.approx(share, abs=0.015)


def test_a_larger_train_share_moves_questions_only_towards_train() -> None:
    small, large = Splits(train=0.4, validation=0.2, test=0.4), Splits(train=0.5, validation=0.2, test=0.3)
    order = {split: position for position, split in enumerate(SPLITS)}
    for number in range(2000):
        before, after = (split_of("", "set", str(number), shares) for shares in (small, large))
        assert order[after] <= order[before]


def test_sample_and_split_are_independent_of_each_other() -> None:
    many = [question(f"q{number}") for number in range(8000)]
    sample = sampled(many, "set", settings(number=4000))
    assert sum(asked.split == "train" for asked in sample) / 4000 == pytest.approx(0.5, abs=0.03)
    # Shards are parts of the sample in the order of its hashes; none of them is of one split.
    ordered = sorted(sample, key=lambda asked: asked.hash)
    for start in range(0, 4000, 1000):
        splits = [asked.split for asked in ordered[start : start + 1000]]
        assert splits.count("train") / len(splits) == pytest.approx(0.5, abs=0.06)


def test_of_questions_with_the_same_words_one_is_kept_whatever_the_order_and_the_ids() -> None:
    group = [
        question("Who was the director of The Take?", "Brad Furman", subject="The Take", question_id="2"),
        question("Who was the director of The Take?", "Naomi Klein", "Avi Lewis", subject="The Take", question_id="1"),
        question("who was the director of the take", "Brad Furman", subject="The Take", question_id="3"),
    ]
    kept = set()
    for seed in range(20):
        rng = random.Random(seed)
        names = rng.sample(["x", "y", "z"], 3)
        renamed = [replace(one, question_id=name) for one, name in zip(group, names, strict=True)]
        (one,), dropped = distinct(rng.sample(renamed, 3))
        kept.add((one.question, one.gold_answers))
        assert dropped == {"duplicate": 1, "same_question_other_answers": 1}
    assert kept == {("Who was the director of The Take?", ("Brad Furman",))}


def test_questions_with_other_words_are_all_kept() -> None:
    kept, dropped = distinct(QUESTIONS)
    assert kept == QUESTIONS
    assert not dropped
    assert len({normalise(one.question) for one in kept}) == 120


@pytest.mark.parametrize(
    ("answers", "expected"),
    [(("yes",), True), (("No.",), True), (("YES", "🇿🇦"), True), (("yes", "Rome"), False), (("Norway",), False)],
)
def test_only_yes_or_no_is_told_from_a_real_answer(answers: tuple[str, ...], expected: bool) -> None:
    assert only_yes_or_no(question("q", *answers)) is expected


@pytest.mark.parametrize("sizes", [(1, 2, 1), (2, 1, 1), (2, 2, 0), (0, 9, 9)])
def test_a_split_with_too_few_questions_is_an_error_with_counts_and_remedy(sizes: tuple[int, int, int]) -> None:
    sample = [Asked(question("q"), split, "0") for split, size in zip(SPLITS, sizes, strict=True) for _ in range(size)]
    counts = ", ".join(f"{split} {size}" for split, size in zip(SPLITS, sizes, strict=True))
    with pytest.raises(DeltapError, match=rf"data set nq: .*{counts}.* Ask more questions \(questions\.number"):
        split_sizes(sample, "nq")


def test_the_fewest_questions_that_are_enough() -> None:
    sample = [Asked(question("q"), split, "0") for split in ("train", "train", "validation", "validation", "test")]
    assert split_sizes(sample, "nq") == {"train": 2, "validation": 2, "test": 1}
