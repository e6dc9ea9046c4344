"""Turning generated token ids into an answer, and knowing which characters each token stands for."""

from dataclasses import dataclass
from typing import Any

_UNFINISHED = "\ufffd"  # what a decoder shows for the first bytes of a character
_END_OF_THOUGHT = "</think>"


@dataclass(frozen=True)
class Answer:
    """What a model said."""

    text: str
    """Without white space around it; with thinking on, what follows the thought."""
    ids: list[int]
    """The generated ids, unchanged, up to the last that holds a character of the text."""
    offsets: list[tuple[int, int]]
    """Characters of the text for each id; empty (equal numbers) for ids before the text, or with white space only."""
    truncated: bool
    """The model was cut off before it ended."""
    thought: str = ""
    """With thinking on, what the model wrote before its answer."""


def read_answer(tokenizer: Any, prompt_ids: list[int], ids: list[int], truncated: bool, thinking: bool) -> Answer:
    """Return the answer that ``ids`` spell after ``prompt_ids``."""
    raw, offsets = decode(tokenizer, prompt_ids[-4:], ids)
    start = 0
    if thinking and _END_OF_THOUGHT in raw:
        start = raw.rindex(_END_OF_THOUGHT) + len(_END_OF_THOUGHT)
    elif thinking:
        start = len(raw)  # the thought never ended
    thought = raw[:start]
    text = raw[start:].strip()
    start += len(raw[start:]) - len(raw[start:].lstrip()) if text else 0
    inside = [(max(0, s - start), min(len(text), e - start)) for s, e in offsets]
    inside = [(s, e) if s < e else (max(0, min(s, len(text))),) * 2 for s, e in inside]
    kept = max((index + 1 for index, (s, e) in enumerate(inside) if s < e), default=0)
    return Answer(text, ids[:kept], inside[:kept], truncated, thought)


def decode(tokenizer: Any, context: list[int], ids: list[int]) -> tuple[str, list[tuple[int, int]]]:
    """Return the text of ``ids`` after ``context``, and the characters of it that each id stands for.

    Ids are decoded together with what stands before them, because tokenizers such as SentencePiece's drop a blank at
    the start. A character that is spread over several ids belongs to each of them.
    """
    before = _decode(tokenizer, context)
    texts = [_decode(tokenizer, [*context, *ids[:count]])[len(before) :] for count in range(len(ids) + 1)]
    whole = texts[-1]
    ends: list[int] = []
    unfinished: list[bool] = []
    for text in texts:
        shared = next(
            (i for i, (a, b) in enumerate(zip(text, whole, strict=False)) if a != b),
            min(len(text), len(whole)),
        )
        ends.append(max(shared, ends[-1] if ends else 0))
        unfinished.append(text.endswith(_UNFINISHED) and shared < len(whole))
    offsets = []
    for index in range(len(ids)):
        start, end = ends[index], ends[index + 1]
        offsets.append((start, end + 1 if unfinished[index + 1] else end))
    return whole, offsets


def _decode(tokenizer: Any, ids: list[int]) -> str:
    return tokenizer.decode(ids, skip_special_tokens=False, clean_up_tokenization_spaces=False)
