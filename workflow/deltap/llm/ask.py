"""Asking a language model for JSON, and once more where a reply cannot be used."""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from deltap.settings import Example, PromptSettings

Value = TypeVar("Value")
Progress = Callable[[int], object]
ATTEMPTS = 2


@dataclass(frozen=True)
class Task:
    """What a language model is to do with a text."""

    instruction: str
    """Stands before the text, for chat models."""
    examples: tuple[tuple[str, str], ...]
    """Texts with their right replies, for base models."""

    def message(self, text: str) -> str:
        """Return the message to a chat model."""
        return f"{self.instruction}\n{text}"

    def prompt(self) -> PromptSettings:
        """Return how the project's own engine puts a text; the text stands where else a question does."""
        return PromptSettings(
            examples=tuple(Example(question=text, answer=reply) for text, reply in self.examples),
            message=self.message("{question}"),
        )


class Replier(Protocol):
    """Somebody who replies to texts."""

    def identity(self) -> dict[str, Any]:
        """Return what replies depend on besides task and text, as a JSON value."""

    def replies(self, task: Task, texts: Sequence[str], progress: Progress) -> list[str]:
        """Return the reply to each text; ``progress`` is told how many are done."""


class Refused(Exception):
    """A reply that cannot be used, and why, in words that the language model is told."""


def ask(
    replier: Replier, task: Task, texts: Sequence[str], read: Callable[[int, str], Value], progress: Progress
) -> list[Value | None]:
    """Return what ``read`` makes of the reply to each text, None where it refuses the second reply too.

    ``read`` is called with the text's index and the reply, and raises Refused for one that cannot be used; the language
    model is then shown its reply with the reason, once. ``progress`` is told the number of texts that are done.
    """
    values: list[Value | None] = [None] * len(texts)
    asked = dict(enumerate(texts))
    for attempt in range(ATTEMPTS):
        told: Progress = progress if attempt == 0 else _silent
        refused = {}
        for index, reply in zip(asked, replier.replies(task, list(asked.values()), told), strict=True):
            try:
                values[index] = read(index, reply)
            except Refused as reason:
                refused[index] = f"{texts[index]}\n(You replied {reply.strip()!r}, which cannot be used: {reason}.)"
        asked = refused
        if not asked:
            break
    return values


def _silent(done: int) -> None:
    pass


def read_object(reply: str) -> dict[str, Any]:
    """Return the first JSON object in a reply, whatever stands around it. Raises Refused where there is none."""
    decoder = json.JSONDecoder()
    start = reply.find("{")
    while start >= 0:
        try:
            value, _ = decoder.raw_decode(reply, start)
        except (ValueError, RecursionError):
            start = reply.find("{", start + 1)
            continue
        return value
    raise Refused("it holds no JSON object")
