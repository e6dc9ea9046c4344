"""Exact tokens that others than rules and fields name: a given file, and a language model."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from deltap.exact.found import NamedSpans, Phrases, Source
from deltap.given import Given

Question = Mapping[str, Any]
"""A row of the QUESTIONS table."""


@dataclass(frozen=True)
class Named:
    """The exact tokens that others than rules and fields name."""

    given: Given[NamedSpans] = field(default_factory=Given)
    llm: dict[str, NamedSpans] = field(default_factory=dict)
    """By question id."""

    def all_of(self, question: Question) -> dict[Source, list[NamedSpans]]:
        """Return everything that is named of a question and of answers to it."""
        llm = self.llm.get(question["question_id"])
        return {"given": self.given.find_all(question), "llm": [llm] if llm else []}

    def question(self, question: Question) -> Phrases:
        """Return what is named of a question."""
        named = self.all_of(question)
        return {
            source: next((i.exact_question for i in items if i.exact_question), ()) for source, items in named.items()
        }

    def answer(self, question: Question, answer: str) -> Phrases:
        """Return what is named of an answer."""
        given, llm = self.given.find(question, answer), self.llm.get(question["question_id"])
        phrases: dict[Source, tuple[str, ...]] = {}
        if given and given.exact_answer:
            phrases["given"] = (given.exact_answer,)
        if llm and llm.exact_answer:
            phrases["llm"] = (llm.exact_answer,)
        return phrases
