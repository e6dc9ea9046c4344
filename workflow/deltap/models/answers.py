"""Turning generated token ids into an answer, and knowing which characters each token stands for."""

from bisect import bisect_left
from dataclasses import dataclass
from typing import Any

_UNFINISHED = "\ufffd"  # what a decoder shows for the first bytes of a character
_END_OF_THOUGHT = "</think>"
_CONTEXT = 4  # tokens before those that are decoded


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
    """With thinking on, what the model wrote before its answer, closing tag included."""
    unfinished_thought: bool = False
    """With thinking on, the closing tag is missing, so that there is no answer."""


def read_answer(tokenizer: Any, prompt_ids: list[int], ids: list[int], truncated: bool, thinking: bool) -> Answer:
    """Return the answer that ``ids`` spell after ``prompt_ids``; with ``thinking``, what follows the closing tag."""
    context = prompt_ids[-_CONTEXT:]
    first, start, thought = 0, 0, ""
    if thinking:
        thought, first, start = _thought(tokenizer, context, ids)
        if not thought.endswith(_END_OF_THOUGHT):
            return Answer("", [], [], truncated, thought, unfinished_thought=True)
    raw, offsets = decode(tokenizer, [*context, *ids[:first]][-_CONTEXT:], ids[first:])
    text = raw[start:].strip()
    start += len(raw[start:]) - len(raw[start:].lstrip()) if text else 0
    inside = [(max(0, s - start), min(len(text), e - start)) for s, e in offsets]
    inside = [(0, 0)] * first + [(s, e) if s < e else (max(0, min(s, len(text))),) * 2 for s, e in inside]
    kept = max((index + 1 for index, (s, e) in enumerate(inside) if s < e), default=0)
    return Answer(text, ids[:kept], inside[:kept], truncated, thought)


def _thought(tokenizer: Any, context: list[int], ids: list[int]) -> tuple[str, int, int]:
    """Return the thought with its closing tag, the id in which the tag ends, and where in the text from that id on.

    Without a closing tag all is thought. Of several closing tags the last one counts.
    """

    def text(count: int) -> str:
        return _decode(tokenizer, [*context, *ids[:count]])[len(before) :]

    before = _decode(tokenizer, context)
    whole = text(len(ids))
    if _END_OF_THOUGHT not in whole:
        return whole, len(ids), 0
    stop = whole.rindex(_END_OF_THOUGHT) + len(_END_OF_THOUGHT)
    tags = whole.count(_END_OF_THOUGHT)
    # Thoughts are thousands of tokens long: search by halves, not token by token.
    first = bisect_left(range(1, len(ids) + 1), True, key=lambda count: text(count).count(_END_OF_THOUGHT) == tags)
    return whole[:stop], first, stop - len(text(first))


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
