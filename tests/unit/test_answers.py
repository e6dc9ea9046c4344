"""From generated ids to an answer and back to its tokens."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

import tiny
from deltap.exact.spans import Span, tokens_of_span
from deltap.models.answers import decode, read_answer

TOKENIZER = tiny.tokenizer()
CONTEXT = TOKENIZER.encode("Answer:")
TEXTS = [" Paris", " The city of Kraków.", " 東京", "🇿🇦!", " x\ny"]


@pytest.mark.parametrize("text", TEXTS)
def test_ids_spell_their_text(text):
    assert decode(TOKENIZER, CONTEXT, TOKENIZER.encode(text))[0] == text


@given(st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=12))
def test_tokens_of_every_span_are_the_fewest_that_spell_it(text):
    ids = TOKENIZER.encode(text)
    whole, offsets = decode(TOKENIZER, CONTEXT, ids)
    assert whole == text
    assert [start for start, _ in offsets] == sorted(start for start, _ in offsets)
    for start in range(len(text)):
        tokens = tokens_of_span(Span(start, start + 1), offsets)
        assert tokens == list(range(tokens[0], tokens[-1] + 1))
        spelled = TOKENIZER.decode([ids[token] for token in tokens])
        assert text[start] in spelled
        for fewer in (tokens[1:], tokens[:-1]):
            assert not fewer or text[start] not in TOKENIZER.decode([ids[token] for token in fewer])


@pytest.mark.parametrize("text", TEXTS)
def test_the_last_kept_token_holds_a_character_of_the_stripped_answer(text):
    ids = TOKENIZER.encode(text + " \n")
    answer = read_answer(TOKENIZER, CONTEXT, ids, truncated=False, thinking=False)
    assert answer.text == text.strip()
    assert answer.ids == ids[: len(answer.ids)]
    start, end = answer.offsets[-1]
    assert start < end <= len(answer.text)
    assert all(0 <= s <= e <= len(answer.text) for s, e in answer.offsets)


def test_white_space_alone_is_an_empty_answer():
    answer = read_answer(TOKENIZER, CONTEXT, TOKENIZER.encode(" \n "), truncated=True, thinking=False)
    assert (answer.text, answer.ids, answer.truncated) == ("", [], True)
    assert read_answer(TOKENIZER, CONTEXT, [], truncated=False, thinking=False).text == ""


def test_the_answer_follows_the_thought():
    ids = TOKENIZER.encode("<think> Rome or Paris? </think>\n\nParis")
    answer = read_answer(TOKENIZER, CONTEXT, ids, truncated=False, thinking=True)
    assert answer.text == "Paris"
    assert answer.thought == "<think> Rome or Paris? </think>"
    assert answer.ids == ids
    tokens = tokens_of_span(Span(0, 5), answer.offsets)
    assert TOKENIZER.decode([ids[token] for token in tokens]).strip() == "Paris"
    assert len(ids) - len(tokens) > 5


def test_a_thought_that_never_ends_is_no_answer():
    ids = TOKENIZER.encode("<think> Rome or Paris?")
    assert read_answer(TOKENIZER, CONTEXT, ids, truncated=True, thinking=True).text == ""
