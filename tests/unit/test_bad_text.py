"""Whatever stands in a text, nothing breaks: it is asked, found and read back as it is, or it is left out by name."""

import json
from functools import cache
from pathlib import Path

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st
from tokenizers import normalizers

import bad_text
import tiny
from deltap import labels
from deltap.errors import DeltapError
from deltap.exact.answer import exact_answer
from deltap.exact.question import exact_question
from deltap.exact.spans import Span, tokens_of_span
from deltap.files import write_json
from deltap.models.answers import read_answer
from deltap.models.load import load_tokenizer
from deltap.models.prompts import Prompter
from deltap.questions.build import question_table
from deltap.settings import LABEL_NAMES, DatasetSource, PromptSettings, QuestionSettings, QuestionsStage
from deltap.tables import QUESTIONS, read_table, write_table
from deltap.text import contains, normalise

REAL = sorted((Path(__file__).parents[2] / "models").glob("*/tokenizer.json"))
"""Tokenizers of the models that were fetched here, such as the demo's."""
TOKENIZERS = {
    "byte-level": tiny.tokenizer,
    "byte-level, NFC": lambda: tiny.normalising(normalizers.NFC()),
    "byte-level, NFKC": lambda: tiny.normalising(normalizers.NFKC()),
    "SentencePiece BPE": tiny.sentencepiece,
    "SentencePiece BPE, always a blank": lambda: tiny.sentencepiece(prefix="always"),
    "SentencePiece BPE, a blank first": lambda: tiny.sentencepiece(prefix="first"),
    "SentencePiece unigram": lambda: tiny.sentencepiece(prefix="always", unigram=True),
    **{path.parent.name: lambda path=path: load_tokenizer(path.parent) for path in REAL},
}


@cache
def tokenizer_of(name):
    return TOKENIZERS[name]()


@cache
def prompter_of(name, kind):
    return Prompter(tokenizer_of(name), kind, PromptSettings())


def stage(path, **entry):
    splits = {"train": 0.4, "validation": 0.3, "test": 0.3}
    return QuestionsStage(
        dataset="fuzzed",
        entry=DatasetSource(path=str(path), **entry),
        questions=QuestionSettings(bad_rows=1, splits=splits),
        examples=PromptSettings().examples,
    )


# As many ordinary questions as every split needs.
ORDINARY = [{"question": f"What is the {n}th letter?", "answers": [f"letter {n}"]} for n in range(40)]
rows = st.fixed_dictionaries(
    {"question": bad_text.damaged, "answers": st.one_of(st.lists(bad_text.damaged, max_size=3), bad_text.values)},
    optional={"subject": bad_text.damaged, "property": bad_text.values, "popularity": bad_text.values,
              "id": bad_text.values, "more": bad_text.values},
)  # fmt: skip


def as_lists(table):
    return [{**row, "gold_answers": list(row["gold_answers"])} for row in table]


@pytest.mark.parametrize("form", ["json", "jsonl"])
@given(odd=st.lists(st.one_of(rows, bad_text.values), max_size=4))
def test_any_file_of_rows_gives_a_table_that_can_be_read_back(form, odd, tmp_path_factory):
    """A row that cannot be used is counted; only two rows of one id are an error of the whole file."""
    folder = tmp_path_factory.getbasetemp()
    path = folder / f"odd.{form}"
    every = [*ORDINARY, *odd]
    lines = [bad_text.json_text(row) for row in every]
    path.write_text("\n".join(lines) if form == "jsonl" else f"[{','.join(lines)}]", encoding="utf-8")
    try:
        table, counts = question_table(stage(path, yes_no=False))
    except DeltapError as error:
        if "two questions have the id" not in str(error):
            raise
        str(error).encode()
        return
    assert counts["rows"] == len(every)
    assert len(table) == counts["rows"] - sum(counts["dropped"].values())
    assert len(table) >= len(ORDINARY)
    write_table(folder / "odd.parquet", table, QUESTIONS, {"counts": counts})
    assert read_table(folder / "odd.parquet", QUESTIONS).to_pylist() == as_lists(table)
    for row in table:
        assert row["question"] == row["question"].strip() != ""
        assert normalise(row["question"])
        assert not any(ord(character) < 32 or 127 <= ord(character) < 160 for character in row["question"])
        assert len(row["hash"]) == 16
        json.loads(row["extra"])
        json.dumps(row, allow_nan=False, ensure_ascii=False).encode()


@given(
    content=st.binary(max_size=200), name=st.sampled_from(["x.json", "x.jsonl", "x.csv", "x.tsv", "x.parquet", "x.gz"])
)
@example(content=b"\x1f\x8b\x08\x00", name="x.gz")
@example(content=b"PAR1PAR1", name="x.parquet")
@example(content=b"[" * 100_000, name="x.json")
@example(content=b'{"a":' * 50_000, name="x.jsonl")
@example(content=b'{"question": "\\ud800?", "answers": ["a"]}', name="x.jsonl")
@example(content=b"1" * 5000, name="x.json")
@example(content=b'[{"question": ' + b"1" * 5000 + b', "answers": ["a"]}]', name="x.json")
def test_any_bytes_are_read_or_refused_by_name(content, name, tmp_path_factory):
    path = tmp_path_factory.getbasetemp() / name
    path.write_bytes(content)
    with pytest.raises(DeltapError) as error:
        question_table(stage(path))
    str(error.value).encode()


def test_a_very_long_line_is_one_row(tmp_path):
    path = tmp_path / "long.jsonl"
    odd = {"question": "Why " + "on earth " * 500_000 + "?", "answers": ["x" * 1_000_000]}
    path.write_text("\n".join(map(json.dumps, [*ORDINARY, odd])))
    table, _ = question_table(stage(path))
    assert max(len(row["question"]) for row in table) > 4_000_000
    write_table(tmp_path / "long.parquet", table, QUESTIONS, {})
    assert read_table(tmp_path / "long.parquet", QUESTIONS).to_pylist() == as_lists(table)


@given(text=bad_text.texts, phrase=bad_text.texts)
def test_normalised_text_is_its_own_and_nothing_is_found_by_an_empty_phrase(text, phrase):
    words = normalise(text)
    assert normalise(words) == words
    assert words == " ".join(words.split())
    assert not contains(text, "")
    assert contains(text, text) or not words
    if contains(text, phrase):
        assert normalise(phrase) in words


def check_spans(found, text):
    last = 0
    for span in found.spans:
        assert last <= span.start < span.end <= len(text)
        assert span.text_in(text).strip()
        last = span.end


@given(
    question=bad_text.texts,
    subject=st.none() | bad_text.texts,
    named=st.lists(bad_text.texts, max_size=2),
    data=st.data(),
)
def test_no_span_of_a_question_lies_outside_of_it(question, subject, named, data):
    inside = data.draw(st.tuples(st.integers(0, len(question)), st.integers(0, len(question))))
    phrases = [*named, question[min(inside) : max(inside)]]
    for extractor in ("auto", "given", "fields", "llm", "rules"):
        for asked in (subject, phrases[-1] or None):
            found = exact_question(question, asked, subject, extractor, {"given": phrases, "llm": phrases[-1:]})
            if found:
                check_spans(found, question)
            if extractor == "rules" and normalise(question):
                assert found


@given(answer=bad_text.texts, question=bad_text.texts, named=bad_text.texts, data=st.data())
def test_no_span_of_an_answer_lies_outside_of_it(answer, question, named, data):
    answer = answer.strip()
    at = data.draw(st.tuples(st.integers(0, len(answer)), st.integers(0, len(answer))))
    for phrase in (named, answer[min(at) : max(at)]):
        for extractor in ("auto", "given", "llm", "rules"):
            found = exact_answer(answer, question, extractor, {"given": [phrase], "llm": [phrase]})
            if found:
                assert len(found.spans) == 1
                check_spans(found, answer)


@given(answer=bad_text.texts, core=st.none() | bad_text.texts, question=bad_text.texts, gold=st.lists(bad_text.texts))
def test_any_answer_has_a_label(answer, core, question, gold):
    for match in labels.TEXT_MATCHES:
        found = labels.label(answer, core, question, gold, match)
        assert found.label in LABEL_NAMES
        assert found.matched_alias is None or (found.matched_alias in gold and normalise(found.matched_alias))
        if found.label == "truthful":
            assert found.matched_alias is not None


def check_prompt(name, kind, question):
    tokenizer, prompt = tokenizer_of(name), prompter_of(name, kind)(question)
    start, end = prompt.question_start, prompt.question_start + len(question)
    assert prompt.text[start:end] == question
    assert len(prompt.ids) == len(prompt.offsets)
    assert all(0 <= s <= e <= len(prompt.text) for s, e in prompt.offsets)
    # No control token where the question stands, and as many as ever elsewhere.
    control = set(tokenizer.all_special_ids) - {tokenizer.unk_token_id}
    control |= {i for i, token in tokenizer.added_tokens_decoder.items() if token.special} - {tokenizer.unk_token_id}
    inside = [i for i, (s, e) in zip(prompt.ids, prompt.offsets, strict=True) if s < e and s < end and e > start]
    assert not control & set(inside), tokenizer.convert_ids_to_tokens(inside)
    assert [i for i in prompt.ids if i in control] == [i for i in prompter_of(name, kind)("Why?").ids if i in control]
    return prompt


@pytest.mark.parametrize("kind", ["base", "chat"])
@pytest.mark.parametrize("name", TOKENIZERS)
@given(question=bad_text.texts, data=st.data())
def test_a_question_is_data_for_every_tokenizer_and_template(name, kind, question, data):
    question = question.strip()
    assume(normalise(question))
    prompt = check_prompt(name, kind, question)
    start = data.draw(st.integers(0, len(question) - 1))
    end = data.draw(st.integers(start + 1, len(question)))
    span = Span(start, end).shifted(prompt.question_start)
    tokens = tokens_of_span(span, prompt.offsets)
    # Every token overlaps the span, and no other one does: fewer would not hold it all.
    assert tokens == [i for i, (s, e) in enumerate(prompt.offsets) if max(s, span.start) < min(e, span.end)]


@pytest.mark.parametrize("kind", ["base", "chat"])
@pytest.mark.parametrize("name", TOKENIZERS)
def test_every_special_token_in_a_question_is_plain_text(name, kind):
    tokenizer = tokenizer_of(name)
    for token in tokenizer.added_tokens_decoder.values():
        for question in (f"What is {token.content}?", f"{token.content}{token.content}", f"a{token.content}b"):
            check_prompt(name, kind, question)


@pytest.mark.parametrize("name", TOKENIZERS)
@given(text=bad_text.texts, tail=st.lists(st.integers(0, 399), max_size=3), thinking=st.booleans())
def test_any_ids_are_read_as_an_answer_whose_tokens_lie_inside_of_it(name, text, tail, thinking):
    tokenizer = tokenizer_of(name)
    prompt = tokenizer("Question: Why?\nAnswer:")["input_ids"]
    ids = tokenizer(text, add_special_tokens=False)["input_ids"] + [i % len(tokenizer) for i in tail]
    answer = read_answer(tokenizer, prompt, ids, truncated=False, thinking=thinking)
    answer.text.encode()
    assert answer.text == answer.text.strip()
    assert len(answer.ids) == len(answer.offsets)
    assert all(0 <= s <= e <= len(answer.text) for s, e in answer.offsets)


@given(value=bad_text.values)
def test_what_a_table_or_a_json_file_says_can_be_read_back(value, tmp_path_factory):
    path = tmp_path_factory.getbasetemp() / "value.json"
    write_json(path, {"value": value})
    found = json.loads(path.read_text(encoding="utf-8"))["value"]
    assert repr(found) == repr(json.loads(json.dumps(value)))
