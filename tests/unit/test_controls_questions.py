"""The report's questions: each says yes to an effect, and not to selection, noise or chance (tests/effect.py)."""

from collections import Counter

import pytest

import effect
from deltap.controls.lookup import Row
from deltap.controls.questions import CANNOT_TELL, NO, YES, answer

SEEDS = 8
NULLS = [name for name in effect.CASES if name.startswith("no effect") and "half" not in name]


@pytest.mark.parametrize("case", NULLS)
def test_without_an_effect_hardly_any_question_says_yes(case, tmp_path):
    """Each says so in one of forty by chance; all ten of them together, which go along, in a few."""
    said = Counter()
    for seed in range(SEEDS):
        found = effect.answers(tmp_path / str(seed), **effect.CASES[case], seed=seed)
        assert len(found) == 10
        said.update(asks for asks, word in found.items() if word == YES)
    assert max(said.values(), default=0) <= 2
    assert said.total() <= 0.1 * 10 * SEEDS


def test_an_effect_is_a_yes_to_every_question(tmp_path):
    case = effect.CASES["a quarter of the samples' evidence flows from the question"]
    assert set(effect.answers(tmp_path, **case).values()) == {YES}


@pytest.mark.parametrize(
    ("low", "high", "word"), [(-5, -1, YES), (-5, 1, CANNOT_TELL), (1, 5, NO), (float("nan"), float("nan"), "–")]
)
def test_an_answer_is_read_off_the_interval(low, high, word):
    assert answer(Row(-2, low, high, 0.5, 20)) == word
    assert answer(None) == "–"
