"""What a model says to each question, generated once for all extractors and kept in the store.

Both the inference job and the answers job, which runs where a language model has to look for exact tokens in between,
come here, and find each other's chunks.
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

import pyarrow as pa
import torch

from deltap.errors import DeltapError
from deltap.given import Given
from deltap.models.engine import NotFinite, Places
from deltap.models.language_model import LanguageModel
from deltap.models.prompts import Prompt
from deltap.models.trace import Activations
from deltap.named import Question
from deltap.settings import InferenceSettings, ModelSettings, PromptSettings
from deltap.store import Store, read_rows
from deltap.tables import GENERATED, QUESTIONS, read_table

logger = logging.getLogger("deltap")

Progress = Callable[[int], object]


@dataclass(frozen=True)
class Generated:
    """An answer before it is read."""

    ids: list[int]
    given: bool = False
    """The answer comes from a file; the ids spell it."""


class Generation:
    """Answers questions with one model, chunk by chunk."""

    def __init__(
        self,
        model: LanguageModel,
        name: str,
        dataset: str,
        store: Store,
        identity: Mapping[str, Any],
        given: Given[str] | None = None,
        generated: Mapping[str, Generated | None] | None = None,
    ) -> None:
        """Prepare answers of the model called ``name`` to ``dataset``; ``identity`` is what they depend on besides.

        ``given`` are answers from a file, ``generated`` what the answers job said, by question id; both replace the
        model's.
        """
        self.model = model
        self.name = name
        self.dataset = dataset
        self._store = store
        self._identity = identity
        self._given = given
        self._generated = generated
        self._fresh: dict[Path, list[dict[str, Any]]] = {}

    def prompts(self, questions: Sequence[Question]) -> list[Prompt]:
        """Return the prompts of questions; raises DeltapError if one does not fit the model's context."""
        prompts = [self.model.prompter(question["question"]) for question in questions]
        self.refuse_too_long([question["question_id"] for question in questions], [len(item.ids) for item in prompts])
        return prompts

    def refuse_too_long(self, question_ids: Sequence[str], tokens: Sequence[int]) -> None:
        """Raise DeltapError where a prompt of so many tokens, with its answer, does not fit the model's context."""
        limit, new = self.model.engine.max_positions, self.model.entry.max_new_tokens
        too_long = [index for index, length in enumerate(tokens) if limit and length + new > limit]
        if too_long:
            first = too_long[0]
            raise DeltapError(
                f"{self.dataset}: {len(too_long)} prompts are longer than the model's context, first question "
                f"{question_ids[first]!r}: {tokens[first]} tokens and {new} new ones, the model takes {limit}; shorten "
                "the prompt's examples or leave these questions out"
            )

    def _refuse_long_answers(
        self, questions: Sequence[Question], prompts: Sequence[Prompt], answers: Sequence[Generated | None]
    ) -> None:
        """Raise DeltapError where a given answer does not fit the model's context behind its prompt."""
        limit = self.model.engine.max_positions
        for question, prompt, answer in zip(questions, prompts, answers, strict=True):
            if limit and answer and len(prompt.ids) + len(answer.ids) > limit:
                raise DeltapError(
                    f"{self.dataset}: the given answer to question {question['question_id']!r} is too long: "
                    f"{len(prompt.ids)} tokens of the prompt and {len(answer.ids)} of the answer, the model takes "
                    f"{limit}; shorten the answer or leave its row out"
                )

    def is_given(self, question: Question) -> bool:
        """Tell whether the answer to a question comes from a file, or would, but the file has none."""
        if self._generated is not None:
            found = self._generated[question["question_id"]]
            return found is None or found.given
        return bool(self._given)

    def given_answer(self, question: Question) -> str | list[int] | None:
        """Return the answer to a question that does not come from the model, as text or as the ids that spell it."""
        if self._generated is not None:
            found = self._generated[question["question_id"]]
            return found.ids if found and found.given else None
        return self._given.find(question) if self._given else None

    def __call__(
        self,
        questions: Sequence[Question],
        prompts: Sequence[Prompt],
        progress: Progress,
        sites: tuple[str, ...] = (),
        places: Places | None = None,
    ) -> tuple[list[Generated | None], dict[int, Activations]]:
        """Return what the model says to each question of a chunk, or what a file gives; None where it gives nothing.

        Besides, for answers that are generated now, the activations that ``places`` wants (see
        `Engine.generate_and_read`). ``progress`` is told the number of answers done. Raises DeltapError that names the
        question and the layer if the model overflows.
        """
        if self._generated is not None:
            progress(len(questions))
            return [self._generated[question["question_id"]] for question in questions], {}
        if self._given:
            progress(len(questions))
            answers = [self._given.find(question) for question in questions]
            spelled = [
                None if answer is None else Generated(self.model.spell(prompt, answer) if answer else [], given=True)
                for prompt, answer in zip(prompts, answers, strict=True)
            ]
            self._refuse_long_answers(questions, prompts, spelled)
            return spelled, {}
        path = self._path(questions)
        if self._store.has(path):
            logger.info("answers %s are there already", path.stem)
            progress(len(questions))
            return [Generated(row["ids"]) for row in read_rows(path)], {}
        try:
            answered, activations = self.model.generate(prompts, progress, sites, places)
        except NotFinite as error:
            self._explain(error, questions, prompts)
        self._fresh[path] = [{"ids": ids} for ids in answered]
        return [Generated(ids) for ids in answered], activations

    def fresh(self) -> dict[Path, list[dict[str, Any]]]:
        """Return the answers that the model gave since this was called last, as chunks to be kept in the store.

        Kept answers serve other extractors and sites. They are to be kept after the activations that came up with them:
        a job that finds answers reads activations in passes of their own, whose numbers are the same within float
        rounding only, and a job that was killed has to come to the same numbers as one that was not.
        """
        fresh, self._fresh = self._fresh, {}
        return fresh

    def _path(self, questions: Sequence[Question]) -> Path:
        asked = [[question["question_id"], question["question"]] for question in questions]
        return self._store.path({**self._identity, "questions": asked})

    def _explain(self, error: NotFinite, questions: Sequence[Question], prompts: Sequence[Prompt]) -> NoReturn:
        """Find the layer, which tells more than the logits."""
        ids, question = prompts[error.prompt].ids, questions[error.prompt]["question_id"]
        for site, states in self.model.engine.forward([ids], [[len(ids) - 1]], ("resid",)).items():
            refuse_bad_numbers(states, [question], f"{self.name}, {self.dataset}, answering, site {site}")
        raise DeltapError(f"{self.name}, {self.dataset}, question {question!r}: {error}") from None


def answers_identity(
    facts: Mapping[str, Any], versions: Mapping[str, str], code: str, entry: ModelSettings, prompt: PromptSettings
) -> dict[str, Any]:
    """Return what answers depend on besides their questions: the model, its device, libraries, code, settings."""
    return {
        **facts,
        "stage": "answers",
        "code": code,
        "versions": {name: versions[name] for name in ("torch", "transformers", "tokenizers")},
        "entry": entry.model_dump(mode="json"),
        "prompt": prompt.model_dump(mode="json"),
    }


def shard_questions(path: Path, shard: int, settings: InferenceSettings) -> pa.Table:
    """Return the QUESTIONS rows of one shard, in the order of their hashes: whole chunks, one after the other.

    So a question is in the same chunk, and in the same batches, however many shards there are, and the shards one after
    the other are what one shard would be, to the bit.
    """
    questions, size = read_table(path, QUESTIONS), settings.chunk_questions
    chunks = -(-len(questions) // size)
    first, last = (chunks * number // settings.shards * size for number in (shard, shard + 1))
    return questions.slice(first, last - first)


def read_generated(path: Path, questions: Sequence[Question]) -> dict[str, Generated | None]:
    """Return the answers of a GENERATED table by question id.

    Raises DeltapError where a question of ``questions`` is missing.
    """
    found = {
        row["question_id"]: None if row["generated_ids"] is None else Generated(row["generated_ids"], row["given"])
        for row in read_table(path, GENERATED).to_pylist()
    }
    missing = [question["question_id"] for question in questions if question["question_id"] not in found]
    if missing:
        raise DeltapError(
            f"{path}: no answer to {len(missing)} of {len(questions)} questions, first {missing[0]!r}; it is older "
            "than the table of questions: delete it and run snakemake again"
        )
    return found


def refuse_bad_numbers(states: torch.Tensor, question_ids: Sequence[str], what: str) -> None:
    """Raise DeltapError where ``states`` (layers, questions, positions, hidden) are not finite."""
    bad = ~torch.isfinite(states).all(dim=-1)
    if bad.any():
        layer, sample, _ = bad.nonzero()[0].tolist()
        raise DeltapError(
            f"{what}: NaN or infinity at question {question_ids[sample]!r}, layer {layer}; try 'dtype: bfloat16' or "
            "'float32' for the model"
        )
