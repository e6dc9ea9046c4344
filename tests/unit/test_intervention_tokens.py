"""What is cut instead of the exact question: properties that hold for every prompt and every seed."""

from hypothesis import given
from hypothesis import strategies as st

from deltap.interventions.tokens import NEAREST, PromptTokens, dose, random_mass, random_tokens


@st.composite
def places(draw):
    """A prompt with a question in it, of which some tokens, in one piece or several, are exact."""
    prompt = draw(st.integers(4, 60))
    start = draw(st.integers(0, prompt - 2))
    end = draw(st.integers(start + 2, prompt))
    question = list(range(start, end))
    exact = draw(st.sets(st.sampled_from([token for token in question if token]), min_size=1))
    return PromptTokens(prompt, question, sorted(exact))


KEYS = st.tuples(st.integers(0, 5), st.text(max_size=5), st.integers(0, 5))


@given(places(), KEYS)
def test_random_tokens_are_as_many_outside_of_the_exact_ones_the_questions_first(place, key):
    drawn = random_tokens(place, *key)
    available = place.prompt - 1 - len(place.exact)
    assert len(drawn.tokens) == len({*drawn.tokens}) == min(len(place.exact), available)
    assert not {*drawn.tokens} & {0, *place.exact}
    assert all(0 < token < place.prompt for token in drawn.tokens)
    ours = {*drawn.tokens} & {*place.question}
    assert drawn.from_question == len(ours)
    others = {*place.question} - {*place.exact, 0}
    assert len(ours) == min(len(place.exact), len(others))
    filled = {*drawn.tokens} - {*place.question}
    missing = len(place.exact) - len(ours)
    assert filled <= {*place.outside[: NEAREST * missing]}


@given(places(), KEYS)
def test_a_draw_depends_on_its_own_key_and_tokens_only(place, key):
    assert random_tokens(place, *key) == random_tokens(place, *key)
    same = PromptTokens(place.prompt, tuple(reversed(place.question)), tuple(reversed(place.exact)))
    assert random_tokens(same, *key) == random_tokens(place, *key)


def test_draws_differ_and_reach_every_other_token_alike():
    place = PromptTokens(30, range(10, 26), [12, 13])
    counts = dict.fromkeys(place.others, 0)
    for draw in range(2000):
        for token in random_tokens(place, 0, "q", draw).tokens:
            counts[token] += 1
    expected = 2000 * 2 / len(counts)
    assert all(abs(count - expected) < 5 * expected**0.5 for count in counts.values())


def test_tokens_to_fill_up_with_are_the_nearest():
    place = PromptTokens(40, [20, 21, 22], [20, 21])
    # One token of the question is left; one more comes from the nearest three outside, which are at 19, 18 and 23.
    seen = {token for draw in range(200) for token in random_tokens(place, 0, "q", draw).tokens}
    assert seen == {22, 19, 18, 23}


@given(places(), KEYS, st.integers(1, 6))
def test_doses_are_nested_and_of_the_exact_question(place, key, number):
    fewer, more = dose(place, number, *key), dose(place, number + 1, *key)
    assert {*fewer.tokens} <= {*more.tokens} <= {*place.exact}
    assert len(fewer.tokens) == min(number, len(place.exact))
    assert dose(place, 100, *key).tokens == sorted(place.exact)


@given(places(), KEYS, st.randoms(use_true_random=False))
def test_tokens_of_equal_mass_are_the_nearest_beginning_of_an_order(place, key, source):
    weight = [source.random() for _ in range(place.prompt)]

    def mass(tokens):
        return sum(weight[token] for token in tokens)

    drawn = random_mass(place, mass, *key)
    assert not {*drawn.tokens} & {0, *place.exact}
    assert drawn.from_question == len({*drawn.tokens} & {*place.question})
    if place.prompt - 1 > len(place.exact):
        assert drawn.tokens
        # Either it reaches as far as one token more or less would, or there is nothing left to add.
        off = abs(mass(drawn.tokens) - mass(place.exact))
        everything = mass([*place.others, *place.outside])
        assert off <= max(weight) or drawn.tokens == sorted([*place.others, *place.outside])
        assert off <= max(weight) or everything < mass(place.exact)
    others = {*place.question} - {*place.exact, 0}
    if {*drawn.tokens} - {*place.question}:
        assert others <= {*drawn.tokens}
