"""Putting a question to a model, and knowing where it stands in the prompt."""

import re
from dataclasses import dataclass
from datetime import date
from itertools import groupby
from typing import Any

from deltap.errors import DeltapError
from deltap.models.answers import decode
from deltap.settings import PromptSettings

# Stands for the question while its place in the rendered prompt is looked for; private-use characters.
_PLACE = "\ue000\ue001\ue002"
_ORDINARY = "What is 1 + 1?"
# What templates take for today (Llama 3.2 tells the model the date; this is the date it falls back to itself). Else
# prompts, and with them every number, would change from day to day.
_TODAY = date(2024, 7, 26)
_NOW = re.compile(r"""strftime_now\(\s*(["'])(.*?)\1\s*\)""")


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
        if self._before + _ORDINARY + self._after != self._render(_ORDINARY):
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
            [message],
            chat_template=_NOW.sub(lambda call: repr(_TODAY.strftime(call[2])), self._tokenizer.get_chat_template()),
            tokenize=False,
            add_generation_prompt=True,
            enable_thinking=self._thinking,
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
        ids, offsets = encoded["input_ids"], [(int(start), int(end)) for start, end in encoded["offset_mapping"]]
        # Some tokenizers end every text with an end token, after which a model has nothing more to say.
        while keywords["add_special_tokens"] and ids and offsets[-1][0] == offsets[-1][1]:
            ids, offsets = ids[:-1], offsets[:-1]
        return ids, self._refined(text, ids, offsets)

    def _refined(self, text: str, ids: list[int], offsets: list[tuple[int, int]]) -> list[tuple[int, int]]:
        """Return the offsets with one character's bytes told from the next one's.

        Unigram tokenizers give every byte of a run of unknown characters the place of the whole run.
        """
        refined = list(offsets)
        first = 0
        for (start, end), group in groupby(offsets):
            after = first + len(list(group))
            if after - first > 1 and end - start > 1:
                raw, inside = decode(self._tokenizer, ids[max(0, first - 4) : first], ids[first:after])
                if raw == text[start:end]:
                    refined[first:after] = [(start + s, start + e) for s, e in inside]
            first = after
        return refined

    def _encode_in_pieces(self, question: str) -> tuple[list[int], list[tuple[int, int]]]:
        """Encode the prompt as usual, but what stands between its own special tokens around the question as plain text.

        Raises DeltapError for a tokenizer that gives an ordinary question other tokens in this way than in one piece.
        """
        for in_place in (False, True):
            if self._in_pieces(_ORDINARY, in_place) == self._encode(self._before + _ORDINARY + self._after):
                return self._respelled(question, *self._in_pieces(question, in_place))
        raise DeltapError(
            f"{self._tokenizer.name_or_path}: the question {question!r} holds a special token of this tokenizer, which "
            "cannot be made plain text there; leave the question out"
        )

    def _in_pieces(self, question: str, in_place: bool) -> tuple[list[int], list[tuple[int, int]]]:
        """Encode up to the last special token before the question, from there to the first after it, and the rest.

        A tokenizer may put a blank before the middle piece because it thinks that a text begins there; ``in_place``
        encodes the piece behind the first one, as plain text too, whose tokens are then left out.
        """
        text, special = self._before + question + self._after, self._special_places()
        start = max((end for _, end in special if end <= len(self._before)), default=0)
        end = len(question) + min(
            (begin for begin, _ in special if begin >= len(self._before)), default=len(self._before + self._after)
        )
        inner = {"split_special_tokens": True} | ({"add_special_tokens": False} if start else {})
        tokens: list[tuple[int, tuple[int, int]]] = []
        for begin, stop, keywords in (
            (0, start, {}),
            (0 if in_place else start, end, inner),
            (end, len(text), {"add_special_tokens": False}),
        ):
            if begin == stop:
                continue
            reached = tokens[-1][1][1] if tokens else 0
            for token, (s, e) in zip(*self._encode(text[begin:stop], **keywords), strict=True):
                if not reached or e + begin > reached:
                    tokens.append((token, (s + begin, e + begin)))
        return [token for token, _ in tokens], [place for _, place in tokens]

    def _respelled(
        self, question: str, ids: list[int], offsets: list[tuple[int, int]]
    ) -> tuple[list[int], list[tuple[int, int]]]:
        """Return tokens in which no special one stands in the question, spelled by its characters instead.

        In a unigram vocabulary special tokens are pieces like others, so that plain text is spelled with them too.
        """
        special = set(self._tokenizer.all_special_ids) | set(self._tokenizer.added_tokens_decoder)
        text, unknown = self._before + question + self._after, self._tokenizer.unk_token_id
        start, end = len(self._before), len(self._before) + len(question)
        tokens: list[tuple[int, tuple[int, int]]] = []
        for token, (s, e) in zip(ids, offsets, strict=True):
            if token in special and token != unknown and s < e and s < end and e > start:
                tokens += [(piece, (i, i + 1)) for i in range(s, e) for piece in self._spelled(text[i], special)]
            else:
                tokens.append((token, (s, e)))
        return [token for token, _ in tokens], [place for _, place in tokens]

    def _spelled(self, character: str, special: set[int]) -> list[int]:
        """Return the ids of a character by itself, or of its bytes, or the unknown token's."""
        vocabulary = self._tokenizer.get_vocab()
        for pieces in ([character], [f"<0x{byte:02X}>" for byte in character.encode()]):
            ids = [vocabulary.get(piece) for piece in pieces]
            if not (special | {None}) & set(ids):
                return ids
        return [self._tokenizer.unk_token_id]

    def _special_places(self) -> list[tuple[int, int]]:
        """Return where special tokens stand in the prompt without a question."""
        added = self._tokenizer.added_tokens_decoder
        ids, offsets = self._encode(self._before + self._after)
        return [place for token, place in zip(ids, offsets, strict=True) if token in added and place[0] < place[1]]

    def _shared_prefix(self) -> list[int]:
        """Return the ids with which the prompt of every (ordinary) question begins."""
        first, second = self._encode(self._render("What"))[0], self._encode(self._render("1"))[0]
        shared = 0
        while shared < min(len(first), len(second)) and first[shared] == second[shared]:
            shared += 1
        return first[:shared]
