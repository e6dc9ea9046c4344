"""Putting a question to a model, and knowing where it stands in the prompt."""

from dataclasses import dataclass
from typing import Any

from deltap.errors import DeltapError
from deltap.settings import PromptSettings

# Stands for the question while its place in the rendered prompt is looked for; private-use characters.
_PLACE = "\ue000\ue001\ue002"


@dataclass(frozen=True)
class Prompt:
    """A rendered prompt."""

    text: str
    ids: list[int]
    offsets: list[tuple[int, int]]
    """Characters of ``text`` that each token stands for; equal numbers for tokens that stand for none."""
    question_start: int
    """Where in ``text`` the question itself begins."""


class Prompter:
    """Renders and tokenises prompts for one model."""

    def __init__(self, tokenizer: Any, kind: str, settings: PromptSettings, thinking: bool = False) -> None:
        """Prepare prompts of ``kind`` base (few-shot) or chat (the tokenizer's template).

        Raises DeltapError if the tokenizer has no offsets, or no chat template where one is needed.
        """
        if not tokenizer.is_fast:
            raise DeltapError(
                f"{tokenizer.name_or_path}: only a slow tokenizer without character offsets; convert it with "
                "AutoTokenizer.from_pretrained(..., use_fast=True).save_pretrained(...)"
            )
        if kind == "chat" and not tokenizer.chat_template:
            raise DeltapError(f"{tokenizer.name_or_path}: no chat template; use 'kind: base' for this model")
        self._tokenizer = tokenizer
        self._kind = kind
        self._settings = settings
        self._thinking = thinking
        rendered = self._render(_PLACE)
        self._before, _, self._after = rendered.partition(_PLACE)
        if self._before + "What is 1 + 1?" + self._after != self._render("What is 1 + 1?"):
            raise DeltapError(
                f"{tokenizer.name_or_path}: the chat template does not put the message in once and unchanged, so the "
                "question's place in the prompt is unknown; use 'kind: base' for this model"
            )
        self.prefix_ids = self._shared_prefix()

    def _render(self, question: str) -> str:
        if self._kind == "base":
            blocks = [f"Question: {example.question}\nAnswer: {example.answer}" for example in self._settings.examples]
            return "\n\n".join([*blocks, f"Question: {question}\nAnswer:"])
        message = {"role": "user", "content": self._settings.message.replace("{question}", question)}
        return self._tokenizer.apply_chat_template(
            [message], tokenize=False, add_generation_prompt=True, enable_thinking=self._thinking
        )

    def __call__(self, question: str) -> Prompt:
        """Return the prompt for ``question``, in which special tokens of the question's text are plain text."""
        text = self._before + question + self._after
        start, end = len(self._before), len(self._before) + len(question)
        ids, offsets = self._encode(text)
        special = set(self._tokenizer.all_special_ids) | set(self._tokenizer.added_tokens_decoder)
        if any(token in special and s < end and e > start for token, (s, e) in zip(ids, offsets, strict=True)):
            ids, offsets = self._encode_in_pieces(question)
        return Prompt(text, ids, offsets, start)

    def _encode(self, text: str, **keywords: Any) -> tuple[list[int], list[tuple[int, int]]]:
        # A chat template writes its own beginning-of-text token.
        keywords.setdefault("add_special_tokens", self._kind == "base")
        encoded = self._tokenizer(text, return_offsets_mapping=True, **keywords)
        return encoded["input_ids"], [(int(start), int(end)) for start, end in encoded["offset_mapping"]]

    def _encode_in_pieces(self, question: str) -> tuple[list[int], list[tuple[int, int]]]:
        """Encode what stands around the question as usual, and the question without recognising special tokens."""
        ids, offsets = self._encode(self._before)
        for piece, keywords in ((question, {"split_special_tokens": True}), (self._after, {})):
            shift = len(self._before) + (len(question) if piece is self._after else 0)
            more_ids, more_offsets = self._encode(piece, add_special_tokens=False, **keywords)
            ids += more_ids
            offsets += [(start + shift, end + shift) for start, end in more_offsets]
        return ids, offsets

    def _shared_prefix(self) -> list[int]:
        """Return the ids with which the prompt of every (ordinary) question begins."""
        first, second = self._encode(self._render("What"))[0], self._encode(self._render("1"))[0]
        shared = 0
        while shared < min(len(first), len(second)) and first[shared] == second[shared]:
            shared += 1
        return first[:shared]
