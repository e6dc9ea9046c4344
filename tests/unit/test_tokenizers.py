"""Spans of questions and answers in tokens, whatever the tokenizer.

A prompt's tokens know their characters from the tokenizer's offsets, an answer's from decoding: two ways that have
nothing in common, and each is the other's reference here.
"""

import json
import unicodedata

import pytest
import sentencepiece
import transformers
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import normalizers, processors

import tiny
from deltap.errors import DeltapError
from deltap.exact.spans import Span, tokens_of_span
from deltap.models.answers import decode, read_answer
from deltap.models.directory import check_model_directory
from deltap.models.load import load_tokenizer
from deltap.models.prompts import Prompter
from deltap.settings import PromptSettings

UNCHANGED = {
    "byte-level": tiny.tokenizer(),
    "SentencePiece BPE": tiny.sentencepiece(),
    "SentencePiece BPE, always a blank": tiny.sentencepiece(prefix="always"),
    "SentencePiece BPE, a blank first": tiny.sentencepiece(prefix="first"),
    "SentencePiece unigram": tiny.sentencepiece(prefix="always", unigram=True),
}
NORMALISING = {
    "byte-level, NFC": (tiny.normalising(normalizers.NFC()), "NFC"),
    "byte-level, NFKC": (tiny.normalising(normalizers.NFKC()), "NFKC"),
    "byte-level, NFD": (tiny.normalising(normalizers.NFD()), "NFD"),
    "SentencePiece unigram, NFKC": (
        tiny.sentencepiece(prefix="always", unigram=True, normalizer=normalizers.NFKC()),
        "NFKC",
    ),
}
ALL = UNCHANGED | {name: tokenizer for name, (tokenizer, _) in NORMALISING.items()}
KINDS = ("base", "chat")
SCRIPTS = [
    "What is the capital of France?",
    "Qui a écrit « Ça ira » à Orléans ?",
    "Какой город столица России?",
    "Ποια είναι η πρωτεύουσα;",
    "ما هي عاصمة مصر؟",
    "भारत की राजधानी क्या है?",
    "東京はどこの首都ですか",
    "한국의 수도는 어디입니까",
    "Which 🇿🇦 flag, 👩‍👩‍👧 or ½ ﬁsh?",
    "Cafe\u0301 Zu\u0308rich  (two  blanks)",
]
CHARACTERS = "".join(sorted(set("".join(SCRIPTS))))
texts = st.text(st.sampled_from(CHARACTERS), min_size=1, max_size=10).filter(lambda text: text.strip())
few = settings(max_examples=40, deadline=None)


def tokens_of(tokenizer, prompt, start, end):
    return tokens_of_span(Span(prompt.question_start + start, prompt.question_start + end), prompt.offsets)


def check_question(tokenizer, kind, question):
    """Every character has tokens, they spell it, and the others together do not hold it."""
    prompt = Prompter(tokenizer, kind, PromptSettings())(question)
    place = slice(prompt.question_start, prompt.question_start + len(question))
    assert prompt.text[place] == question
    assert all(0 <= start <= end <= len(prompt.text) for start, end in prompt.offsets)
    starts = [start for start, end in prompt.offsets if start < end]
    assert starts == sorted(starts)
    for index, character in enumerate(question):
        tokens = tokens_of(tokenizer, prompt, index, index + 1)
        if character != " ":
            assert tokens, (question, character)
            assert character in tokenizer.decode([prompt.ids[token] for token in tokens])
            for fewer in (tokens[1:], tokens[:-1]):
                assert not fewer or character not in tokenizer.decode([prompt.ids[token] for token in fewer])
    return prompt


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", UNCHANGED)
@pytest.mark.parametrize("question", SCRIPTS)
def test_the_tokens_of_a_question_spell_it(name, kind, question):
    prompt = check_question(UNCHANGED[name], kind, question)
    tokens = tokens_of(UNCHANGED[name], prompt, 0, len(question))
    assert tokens == list(range(tokens[0], tokens[-1] + 1))
    spelled = UNCHANGED[name].decode([prompt.ids[token] for token in tokens])
    # Tokens at the ends may hold a blank more; nothing else.
    assert spelled.strip() == question


@pytest.mark.parametrize("name", UNCHANGED)
@given(question=texts)
@few
def test_the_tokens_of_any_question_spell_it(name, question):
    check_question(UNCHANGED[name], "base", question.strip())


@pytest.mark.parametrize("name", NORMALISING)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("question", SCRIPTS)
def test_a_normalizer_moves_no_span(name, kind, question):
    """A phrase's tokens spell the normalised phrase, although characters before it became more or fewer."""
    tokenizer, form = NORMALISING[name]
    prompt = Prompter(tokenizer, kind, PromptSettings())(question)
    at = 0
    for word in question.split(" "):
        if not word:
            at += 1
            continue
        tokens = tokens_of(tokenizer, prompt, at, at + len(word))
        spelled = unicodedata.normalize(form, tokenizer.decode([prompt.ids[token] for token in tokens]))
        wanted = unicodedata.normalize(form, word)
        assert wanted in spelled
        inner = unicodedata.normalize(form, tokenizer.decode([prompt.ids[token] for token in tokens[1:-1]]))
        assert not inner or wanted not in inner
        at += len(word) + 1


def context_and_answer(tokenizer, text):
    """Return the ids and offsets of a text that follows a prompt, from encoding them as one text."""
    before = "Question: X?\nAnswer:"
    encoded = tokenizer(f"{before} {text}", return_offsets_mapping=True, add_special_tokens=False)
    shift = len(before) + 1
    pairs = list(zip(encoded["input_ids"], encoded["offset_mapping"], strict=True))
    context = [token for token, (_, end) in pairs if end <= len(before)]
    answer = pairs[len(context) :]
    return context, [token for token, _ in answer], [(start - shift, end - shift) for _, (start, end) in answer]


# The unigram tokenizer's own offsets do not tell one unknown character's bytes from the next one's.
@pytest.mark.parametrize("name", [name for name in UNCHANGED if "unigram" not in name])
@given(text=texts)
@few
def test_decoding_an_answer_finds_the_tokens_that_encoding_says(name, text):
    tokenizer, text = UNCHANGED[name], text.strip()
    context, ids, expected = context_and_answer(tokenizer, text)
    answer = read_answer(tokenizer, context, ids, truncated=False, thinking=False)
    assert answer.text == text
    assert answer.ids == ids
    for start in range(len(text)):
        if text[start] != " ":
            found = tokens_of_span(Span(start, start + 1), answer.offsets)
            assert found == tokens_of_span(Span(start, start + 1), expected), text[start]


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize("text", SCRIPTS)
def test_the_text_of_an_answer_is_what_its_ids_spell(name, text):
    tokenizer = ALL[name]
    context, ids, _ = context_and_answer(tokenizer, text)
    whole, offsets = decode(tokenizer, context, ids)
    assert tokenizer.decode([*context, *ids]) == tokenizer.decode(context) + whole
    answer = read_answer(tokenizer, context, ids, truncated=False, thinking=False)
    form = NORMALISING[name][1] if name in NORMALISING else None
    assert answer.text == (unicodedata.normalize(form, text) if form else text).strip()
    assert len(offsets) == len(ids)
    starts = [start for start, _ in offsets]
    assert starts == sorted(starts)


def test_a_blank_at_the_beginning_of_an_answer_is_not_lost():
    """SentencePiece decoders drop a blank at the start of a text; inside of one it counts."""
    tokenizer = tiny.sentencepiece()
    context, ids, _ = context_and_answer(tokenizer, "Paris is")
    assert tokenizer.decode(ids) == "Paris is"
    assert decode(tokenizer, context, ids)[0] == " Paris is"


# In a unigram vocabulary special tokens are pieces like others: plain text is spelled with them too.
@pytest.mark.parametrize("name", [name for name in ALL if "unigram" not in name])
@pytest.mark.parametrize("kind", KINDS)
def test_special_tokens_in_a_question_are_plain_text_and_move_no_blank(name, kind):
    tokenizer = ALL[name]
    word = tokenizer.eos_token
    prompter = Prompter(tokenizer, kind, PromptSettings())
    question = f"What does {word} mean?"
    prompt, plain = prompter(question), prompter("What does it mean?")
    inside = tokens_of(tokenizer, prompt, 0, len(question))
    special = set(tokenizer.all_special_ids)
    assert not special & {prompt.ids[token] for token in inside}
    assert tokenizer.decode([prompt.ids[token] for token in inside]).strip() == question
    # Before and behind the odd word stand the tokens of the ordinary question.
    before = tokens_of(tokenizer, plain, 0, len("What does"))[-1] + 1
    assert prompt.ids[:before] == plain.ids[:before]
    behind = len(plain.ids) - tokens_of(tokenizer, plain, len("What does it"), len("What does it mean?"))[0]
    assert prompt.ids[-behind:] == plain.ids[-behind:]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", ["byte-level", "SentencePiece BPE"])
def test_no_end_token_stands_in_a_prompt(name, kind):
    tokenizer = {"byte-level": tiny.tokenizer, "SentencePiece BPE": tiny.sentencepiece}[name]()
    plain = Prompter(tokenizer, kind, PromptSettings())("Why?")
    begin, end = tokenizer.bos_token, tokenizer.eos_token
    tokenizer.backend_tokenizer.post_processor = processors.TemplateProcessing(
        single=f"{begin} $A {end}",
        special_tokens=[(begin, tokenizer.bos_token_id), (end, tokenizer.eos_token_id)],
    )
    assert tokenizer("x")["input_ids"][-1] == tokenizer.eos_token_id
    prompter = Prompter(tokenizer, kind, PromptSettings())
    if kind == "base":
        assert tokenizer.eos_token_id not in prompter("Why?").ids
        assert prompter("Why?").ids[0] == tokenizer.bos_token_id
        assert tokenizer.eos_token_id not in prompter(f"Why {end}?").ids
    else:
        assert prompter("Why?") == plain
    assert prompter("Why?").ids[: len(prompter.prefix_ids)] == prompter.prefix_ids


@pytest.mark.parametrize("name", ALL)
def test_a_saved_tokenizer_loads_with_the_same_tokens(name, tmp_path):
    ALL[name].save_pretrained(tmp_path)
    loaded = load_tokenizer(tmp_path)
    for text in SCRIPTS:
        assert loaded(text)["input_ids"] == ALL[name](text)["input_ids"]


def test_a_tokenizer_that_transformers_would_make_anew_is_used_as_written(tmp_path):
    """transformers' class for Llama ignores the file's own way of putting blanks, which shifts them."""
    written = tiny.sentencepiece()
    written.save_pretrained(tmp_path)
    file = tmp_path / "tokenizer_config.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), "tokenizer_class": "LlamaTokenizer"}))
    text = "<s>What?</s> Who?"
    anew = transformers.AutoTokenizer.from_pretrained(tmp_path)
    assert anew(text)["input_ids"] != written(text)["input_ids"]
    loaded = load_tokenizer(tmp_path)
    assert loaded(text)["input_ids"] == written(text)["input_ids"]
    assert loaded.chat_template == written.chat_template
    assert (loaded.bos_token_id, loaded.eos_token_id) == (1, 2)


def sentencepiece_file(folder, *, tokenizer_class="LlamaTokenizer"):
    """Train a SentencePiece model, write it as a directory's only tokenizer file and return it."""
    texts = [f"{tiny.WORDS} naïve café 3,000 km It's (1603)"] * 20
    (folder / "texts").write_text("\n".join(texts), encoding="utf-8")
    sentencepiece.SentencePieceTrainer.train(
        input=str(folder / "texts"), model_prefix=str(folder / "tokenizer"), model_type="bpe", vocab_size=360,
        hard_vocab_limit=False, byte_fallback=True, add_dummy_prefix=True, remove_extra_whitespaces=False,
        normalization_rule_name="identity", minloglevel=2,
    )  # fmt: skip
    (folder / "config.json").write_text('{"model_type": "llama"}')
    special = {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>", "tokenizer_class": tokenizer_class}
    (folder / "tokenizer_config.json").write_text(json.dumps(special))
    return sentencepiece.SentencePieceProcessor(model_file=str(folder / "tokenizer.model"))


def test_a_sentencepiece_file_alone_is_converted(tmp_path):
    written = sentencepiece_file(tmp_path)
    tokenizer = load_tokenizer(tmp_path)
    for question in ("Who wrote Hamlet (1603)?", "What is the naïve café in 東京?"):
        text = f"Question: {question}\nAnswer:"
        encoded = tokenizer(text, add_special_tokens=False, return_offsets_mapping=True)
        assert encoded["input_ids"] == written.encode(text)
        span = Span(text.index(question), text.index(question) + len(question))
        tokens = tokens_of_span(span, encoded["offset_mapping"])
        assert tokenizer.decode([encoded["input_ids"][token] for token in tokens]).strip() == question


def test_a_conversion_that_shifts_by_a_blank_is_refused_with_the_remedy(tmp_path):
    # Gemma's tokenizers put no blank before a text; this file does.
    sentencepiece_file(tmp_path, tokenizer_class="GemmaTokenizer")
    with pytest.raises(DeltapError, match=r"gives other tokens than by itself; take tokenizer\.json"):
        load_tokenizer(tmp_path)


@pytest.mark.parametrize("family", ["llama", "mistral", "gemma"])
def test_a_damaged_sentencepiece_file_is_refused_with_the_remedy(family, tmp_path):
    (tmp_path / "config.json").write_text(f'{{"model_type": "{family}"}}')
    (tmp_path / "model.safetensors").touch()
    (tmp_path / "tokenizer.model").write_bytes(b"nothing of the kind")
    check_model_directory(tmp_path)
    with pytest.raises(DeltapError, match=r"tokenizer\.model|tokenizer\.json"):
        load_tokenizer(tmp_path)


def test_a_slow_tokenizer_is_refused(tmp_path):
    (tmp_path / "vocab.json").write_text('{"<unk>": 0, "a": 1}')
    (tmp_path / "merges.txt").write_text("#version: 0.2\n")
    (tmp_path / "config.json").write_text('{"model_type": "ctrl"}')
    with pytest.raises(DeltapError, match=r"CTRLTokenizer is a slow tokenizer.*no tokenizer\.json"):
        load_tokenizer(tmp_path)


def test_a_tokenizer_that_cannot_spell_is_refused(tmp_path):
    tokenizer = tiny.tokenizer()
    tokenizer.backend_tokenizer.normalizer = normalizers.Replace("Hamlet", "")
    tokenizer.save_pretrained(tmp_path)
    with pytest.raises(DeltapError, match="the tokenizer spells 'Question: Who wrote"):
        load_tokenizer(tmp_path)
