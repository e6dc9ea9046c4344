"""From generated ids to an answer and back to its tokens."""

import time
from copy import deepcopy

import pytest
from asking import inference_job
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

import tiny
from deltap.exact.spans import Span, tokens_of_span
from deltap.models.answers import decode, read_answer
from deltap.models.engine import Engine
from deltap.settings import InferenceSettings, InferenceStage, ModelSettings, PromptSettings

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
    answer = read_answer(TOKENIZER, CONTEXT, ids, truncated=True, thinking=True)
    assert (answer.text, answer.ids, answer.offsets) == ("", [], [])
    assert answer.unfinished_thought
    assert answer.thought == "<think> Rome or Paris?"


@pytest.mark.parametrize("tokenizer", [TOKENIZER, tiny.sentencepiece()], ids=["byte-level", "SentencePiece"])
@given(
    thought=st.text(st.sampled_from("Rome é東🇿🇦\n<>/think"), max_size=30),
    answer=st.text(st.sampled_from("Paris é東🇿🇦"), min_size=1, max_size=12).filter(str.strip),
)
@settings(max_examples=40, deadline=None)
def test_an_answer_after_a_thought_is_read_like_one_without(tokenizer, thought, answer):
    context = tokenizer.encode("Answer:", add_special_tokens=False)
    tag = f"<think>{thought}</think>"
    ids = [*tokenizer.encode(tag, add_special_tokens=False), *tokenizer.encode(f" {answer}", add_special_tokens=False)]
    found = read_answer(tokenizer, context, ids, truncated=False, thinking=True)
    assert found.text == answer.strip()
    assert found.thought == decode(tokenizer, context, ids)[0].rpartition("</think>")[0] + "</think>"
    assert not found.unfinished_thought
    # The same as if the whole had been read token by token, without looking for the tag first.
    whole, offsets = decode(tokenizer, context, ids)
    start = len(found.thought) + len(whole[len(found.thought) :]) - len(whole[len(found.thought) :].lstrip())
    assert found.ids == ids[: len(found.ids)]
    for place in range(len(found.text)):
        expected = tokens_of_span(Span(start + place, start + place + 1), offsets)
        assert tokens_of_span(Span(place, place + 1), found.offsets) == expected


def test_a_closing_tag_that_shares_a_token_with_the_answer_loses_nothing():
    merged = deepcopy(TOKENIZER)
    merged.add_tokens([">P"])
    ids = merged.encode("a</think>Paris")
    assert any(merged.decode([token]) == ">P" for token in ids)
    answer = read_answer(merged, CONTEXT, ids, truncated=False, thinking=True)
    assert answer.text == "Paris"
    tokens = tokens_of_span(Span(0, 1), answer.offsets)
    assert [merged.decode([ids[token]]) for token in tokens] == [">P"]


def test_a_long_thought_is_read_in_a_moment():
    ids = TOKENIZER.encode("why " * 4000 + "</think> Paris")
    begun = time.perf_counter()
    assert read_answer(TOKENIZER, CONTEXT, ids, truncated=False, thinking=True).text == "Paris"
    assert time.perf_counter() - begun < 2


def test_a_truncated_thought_is_excluded_and_counted_with_its_own_reason(monkeypatch, tmp_path):
    entry = ModelSettings(kind="chat", thinking=True, dtype="float32", max_new_tokens=12)
    stage = InferenceStage(
        model="m",
        dataset="d",
        extractor="auto",
        entry=entry,
        prompt=PromptSettings(),
        inference=InferenceSettings(sites=("attn",), positions=("last", "exact_answer_last")),
        bad_rows=0,
    )
    engine = Engine(tiny.model("llama"), 4096)
    job = inference_job(engine, TOKENIZER, stage, {1}, tmp_path)
    said = [TOKENIZER.encode(text) for text in ("So Rome or", "So </think> Paris", "So Rome", "So </think>")]
    said[0] = (said[0] * 12)[:12]  # as many as the model may say
    monkeypatch.setattr(engine, "generate_and_read", lambda *arguments: (said, {}))
    question = {"question": "What is the capital of Arland?", "subject": "Arland", "property": None, "split": "test"}
    questions = [{**question, "question_id": f"q{index}", "gold_answers": ["x"]} for index in range(4)]
    tensors, rows = job.chunk(job.prepare(questions), lambda done: None)
    assert [row["exclusion"] for row in rows] == ["truncated_thought", None, "unfinished_thought", "empty_answer"]
    assert tensors["clean/attn/last"].shape[1] == 1
    assert rows[1]["answer"] == "Paris"


def test_thinking_leaves_room_to_think():
    assert ModelSettings(kind="chat").max_new_tokens == 32
    assert ModelSettings(kind="chat", thinking=True).max_new_tokens == 4096
    assert ModelSettings(kind="chat", thinking=True, max_new_tokens=500).max_new_tokens == 500
    with pytest.raises(ValidationError, match="thinking goes with kind: chat"):
        ModelSettings(kind="base", thinking=True)
