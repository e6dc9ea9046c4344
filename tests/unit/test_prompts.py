"""Where the question stands in a prompt, and what its tokens are."""

import pytest

from deltap.errors import DeltapError
from deltap.exact.spans import Span, tokens_of_span
from deltap.models.prompts import Prompter
from deltap.settings import Example, PromptSettings

KINDS = ("base", "chat")
QUESTIONS = [
    "What is the capital of France?",
    "What is the capital of Japan?",  # also a few-shot example
    "Who wrote “Ça ira” (1790), the city's song?",
    "東京はどこの首都ですか",
    "Which 🇿🇦 flag is this?",
    "O",
]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("question", QUESTIONS)
def test_the_question_is_found_at_its_own_place(tokenizer, kind, question):
    prompt = Prompter(tokenizer, kind, PromptSettings())(question)
    end = prompt.question_start + len(question)
    assert prompt.text[prompt.question_start : end] == question
    # Its place is after every example and before the answer only.
    assert prompt.text.rindex(question) == prompt.question_start
    assert "Question:" not in prompt.text[end:]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("question", QUESTIONS)
def test_tokens_of_a_span_spell_at_least_the_span_and_no_token_is_spare(tokenizer, kind, question):
    prompt = Prompter(tokenizer, kind, PromptSettings())(question)
    for start in range(len(question)):
        span = Span(start, len(question)).shifted(prompt.question_start)
        tokens = tokens_of_span(span, prompt.offsets)
        assert span.text_in(prompt.text) in tokenizer.decode([prompt.ids[token] for token in tokens])
        inner = [prompt.ids[token] for token in tokens[1:]]
        assert span.text_in(prompt.text) not in tokenizer.decode(inner)


@pytest.mark.parametrize("kind", KINDS)
def test_prompts_begin_with_the_shared_prefix_which_holds_no_part_of_a_question(tokenizer, kind):
    prompter = Prompter(tokenizer, kind, PromptSettings())
    assert prompter.prefix_ids
    for question in QUESTIONS:
        prompt = prompter(question)
        assert prompt.ids[: len(prompter.prefix_ids)] == prompter.prefix_ids
        assert prompt.offsets[len(prompter.prefix_ids) - 1][1] <= prompt.question_start


@pytest.mark.parametrize("kind", KINDS)
def test_special_tokens_inside_a_question_are_plain_text(tokenizer, kind):
    question = "What does <|end|> mean after <|user|>?"
    prompt = Prompter(tokenizer, kind, PromptSettings())(question)
    inside = tokens_of_span(Span(0, len(question)).shifted(prompt.question_start), prompt.offsets)
    special = set(tokenizer.all_special_ids) | set(tokenizer.added_tokens_decoder)
    assert not special & {prompt.ids[token] for token in inside}
    assert question in tokenizer.decode([prompt.ids[token] for token in inside])
    outside = [token for token in range(len(prompt.ids)) if token not in inside]
    plain = Prompter(tokenizer, kind, PromptSettings())("X")
    assert len([t for t in outside if prompt.ids[t] in special]) == len([t for t in plain.ids if t in special])


def test_examples_and_message_are_configurable(tokenizer):
    settings = PromptSettings(examples=(Example(question="A?", answer="B"),), message="Say it: {question} Now.")
    assert Prompter(tokenizer, "base", settings)("C?").text == "Question: A?\nAnswer: B\n\nQuestion: C?\nAnswer:"
    assert "Say it: C? Now." in Prompter(tokenizer, "chat", settings)("C?").text


def test_a_model_without_chat_template_is_refused_as_chat_model(tokenizer):
    from copy import deepcopy

    bare = deepcopy(tokenizer)
    bare.chat_template = None
    with pytest.raises(DeltapError, match="no chat template"):
        Prompter(bare, "chat", PromptSettings())


def test_a_template_that_changes_the_message_is_refused(tokenizer):
    from copy import deepcopy

    upper = deepcopy(tokenizer)
    upper.chat_template = "{{ messages[0]['content'] | upper }}"
    with pytest.raises(DeltapError, match="place in the prompt is unknown"):
        Prompter(upper, "chat", PromptSettings())


def test_thinking_is_told_to_the_template(tokenizer):
    from copy import deepcopy

    thinking = deepcopy(tokenizer)
    thinking.chat_template = "{{ messages[0]['content'] }}{% if enable_thinking %} think{% else %} now{% endif %}"
    assert Prompter(thinking, "chat", PromptSettings(), thinking=True)("Q").text.endswith(" think")
    assert Prompter(thinking, "chat", PromptSettings())("Q").text.endswith(" now")


def test_a_template_that_tells_the_date_gives_the_same_prompt_every_day(tokenizer):
    from copy import deepcopy

    dated = deepcopy(tokenizer)
    dated.chat_template = "Today is {{ strftime_now('%d %b %Y') }}. {{ messages[0]['content'] }}"
    assert Prompter(dated, "chat", PromptSettings())("Q").text.startswith("Today is 26 Jul 2024. ")


@pytest.mark.parametrize(
    "template",
    [
        # Llama 3, Mistral 0.1, Mistral 0.3 and Qwen 3 in short
        "{{ bos_token }}{% for m in messages %}<|user|>\n\n{{ m['content'] | trim }}<|end|>{% endfor %}<|assistant|>\n",
        "{{ bos_token }}{% for m in messages %}[INST] {{ m['content'] }} [/INST]{% endfor %}",
        "{{ bos_token }}{% for m in messages %}[INST] {{ m['content'] }}[/INST]{% endfor %}",
        "{% for m in messages %}<|user|>\n{{ m['content'] }}<|end|>\n{% endfor %}<|assistant|>\n"
        "{% if enable_thinking is defined and enable_thinking is false %}<think>\n\n</think>\n\n{% endif %}",
    ],
)
def test_the_question_is_found_in_templates_of_known_models(tokenizer, template):
    from copy import deepcopy

    other = deepcopy(tokenizer)
    other.chat_template = template
    prompt = Prompter(other, "chat", PromptSettings())("Who wrote Hamlet?")
    assert prompt.text[prompt.question_start :].startswith("Who wrote Hamlet?")
    tokens = tokens_of_span(Span(0, 17).shifted(prompt.question_start), prompt.offsets)
    assert tokenizer.decode([prompt.ids[token] for token in tokens]).strip() == "Who wrote Hamlet?"
    assert prompt.ids.count(tokenizer.bos_token_id) == ("bos_token" in template)
