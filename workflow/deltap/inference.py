"""The inference job: what a model answers, and its activations, clean and under knockout.

One job loads one model once and treats one shard of one data set: answers, exact tokens, the clean pass of all
samples and the knockout pass of the test samples. Everything it computes goes to the store in chunks first; the shard's
files are then put together from the chunks.
"""

import logging
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import torch

from deltap.errors import DeltapError
from deltap.exact.answer import exact_answer
from deltap.exact.found import Found
from deltap.exact.question import exact_question
from deltap.exact.spans import Span, occurrences, tokens_of_span
from deltap.generation import Generated, Generation, Progress, Question, refuse_bad_numbers
from deltap.models.answers import Answer
from deltap.models.prompts import Prompt
from deltap.models.trace import Activations
from deltap.named import Named
from deltap.settings import InferenceStage
from deltap.store import Store, StoredTensor, read_rows
from deltap.tables import ANSWERS
from deltap.tensors import write_activations
from deltap.text import normalise

logger = logging.getLogger("deltap")


@dataclass(frozen=True)
class Sample:
    """A question put to the model, with its exact question tokens."""

    question: Question
    prompt: Prompt
    found: Found | None
    cut: list[int]
    """Positions of E_Q in the prompt."""


@dataclass(frozen=True)
class Said:
    """What the model said to a sample."""

    ids: list[int]
    """Of the prompt and the answer."""
    row: dict[str, Any]
    """Of ANSWERS."""


class Inference:
    """Answers questions with one model and reads its activations."""

    def __init__(self, generation: Generation, stage: InferenceStage, named: Named | None = None) -> None:
        self.generation = generation
        self.model = generation.model
        self.stage = stage
        self.named = named or Named()
        shown = stage.prompt.examples if stage.entry.kind == "base" else ()
        self.examples = {normalise(example.question) for example in shown}

    def check(self, questions: pa.Table) -> None:
        """Check what can be checked before any work. Nothing is kept, so that memory does not grow with the questions.

        Raises DeltapError if a prompt does not fit the model's context, or if no question can be asked because its
        exact tokens stand at position 0.
        """
        ids: list[str] = []
        tokens: list[int] = []
        unused: list[str] = []
        at_the_beginning = 0
        for batch in questions.to_batches(max_chunksize=self.stage.inference.chunk_questions):
            for question in batch.to_pylist():
                sample = self._sample(question, self.model.prompter(question["question"]))
                ids.append(question["question_id"])
                tokens.append(len(sample.prompt.ids))
                at_the_beginning += bool(sample.cut) and sample.cut[0] == 0
                if self.named.question(question).get("given") and not (sample.found and sample.found.source == "given"):
                    unused.append(question["question_id"])
        self.generation.refuse_too_long(ids, tokens)
        if ids and at_the_beginning == len(ids):
            raise DeltapError(
                f"{self.stage.model}: in every prompt the exact question stands at position 0, whose attention must "
                "not be cut; give the prompt examples or a model that begins its texts with a special token"
            )
        if unused and self.stage.extractor in ("auto", "given"):
            logger.warning(
                "the given exact tokens of %d questions are not used, first %r: they do not stand in the question word "
                "for word",
                len(unused),
                unused[0],
            )

    def prepare(self, questions: Sequence[Question]) -> list[Sample]:
        """Render the prompts and find the exact question tokens.

        Raises DeltapError if a prompt does not fit the model's context.
        """
        prompts = self.generation.prompts(questions)
        return [self._sample(question, prompt) for question, prompt in zip(questions, prompts, strict=True)]

    def _sample(self, question: Question, prompt: Prompt) -> Sample:
        named = self.named.question(question)
        asked = question["question"], question["subject"], question["property"]
        found = exact_question(*asked, self.stage.extractor, named)
        cut = _tokens(found.spans, prompt.offsets, prompt.question_start) if found else []
        return Sample(question, prompt, found, cut)

    def depends_on(self, sample: Sample) -> dict[str, Any]:
        """Return what a sample's numbers depend on besides the stage's settings and code, as a JSON value."""
        named = self.named.all_of(sample.question)
        return {
            "question": sample.question,
            "answer": self.generation.given_answer(sample.question),
            "answer_given": self.generation.is_given(sample.question),
            "named": {source: [asdict(item) for item in items] for source, items in named.items()},
        }

    def chunk(
        self, samples: Sequence[Sample], progress: Progress
    ) -> tuple[dict[str, torch.Tensor], list[dict[str, Any]]]:
        """Return the tensors of a chunk, ``<pass>/<site>/<position>`` of shape (layers, samples, hidden), and its rows.

        ``progress`` is told the number of samples done in each of the three steps: answers, clean, knockout.
        Raises DeltapError that names the question if an activation is not finite.
        """
        said, came_up = self._answers(samples, progress)
        rows = [each.row for each in said]
        usable = [index for index, row in enumerate(rows) if row["exclusion"] is None]
        chosen = {"clean": usable, "knockout": [index for index in usable if rows[index]["split"] == "test"]}
        for name, indices in chosen.items():
            for number, index in enumerate(indices):
                rows[index][f"{name}_row"] = number
        clean, knockout = self._passes(said, came_up, chosen["knockout"], progress)
        progress(2 * len(samples) - sum(map(len, chosen.values())))
        tensors: dict[str, torch.Tensor] = {}
        for name, activations in (("clean", clean), ("knockout", knockout)):
            for site in self.stage.inference.sites:
                states = torch.cat([activations[index][site] for index in chosen[name]] or [self._nothing()], dim=1)
                refuse_bad_numbers(
                    states,
                    [rows[index]["question_id"] for index in chosen[name]],
                    f"{self.stage.model}, {self.stage.dataset}, {name} pass, site {site}",
                )
                for number, position in enumerate(self.stage.inference.positions):
                    tensors[f"{name}/{site}/{position}"] = states[:, :, number]
        return tensors, rows

    def _answers(self, samples: Sequence[Sample], progress: Progress) -> tuple[list[Said], dict[int, Activations]]:
        """Return what is said to each sample, and the activations that came up while it was generated.

        Those of the test split are not among them: it goes through both passes in the same batches, so that rounding,
        which depends on the batch, is the same in both. Nor are any of a model that thinks first: its answers are
        thousands of tokens long, and all of them would have to be held.
        """
        said: dict[int, Said] = {}

        def places(index: int, ids: list[int]) -> list[int]:
            said[index] = self._said(samples[index], Generated(ids))
            row = said[index].row
            return [] if row["exclusion"] or row["split"] == "test" else self._positions(row)

        questions, prompts = [sample.question for sample in samples], [sample.prompt for sample in samples]
        reading = None if self.stage.entry.thinking else places
        generated, activations = self.generation(questions, prompts, progress, self.stage.inference.sites, reading)
        for index, item in enumerate(generated):
            if index not in said:
                said[index] = self._said(samples[index], item)
        return [said[index] for index in range(len(samples))], activations

    def _passes(
        self, said: Sequence[Said], came_up: dict[int, Activations], tested: Sequence[int], progress: Progress
    ) -> tuple[dict[int, Activations], dict[int, Activations]]:
        """Return the activations of the clean pass, for all that is usable, and of the knockout pass for ``tested``."""
        engine, sites = self.model.engine, self.stage.inference.sites
        progress(len(came_up))
        read = {*came_up, *tested}
        rest = [index for index, each in enumerate(said) if each.row["exclusion"] is None and index not in read]
        sequences = [each.ids for each in said]

        def of(indices: Sequence[int]) -> tuple[list[list[int]], list[list[int]]]:
            return [sequences[index] for index in indices], [self._positions(said[index].row) for index in indices]

        cuts = [said[index].row["exact_question_tokens"] for index in tested]
        clean, knockout = engine.clean_and_knockout(*of(tested), sites, cuts, progress)
        others = engine.forward(*of(rest), sites, progress=progress)
        return (
            {**came_up, **_each(clean, tested), **_each(others, rest)},
            _each(knockout, tested),
        )

    def _nothing(self) -> torch.Tensor:
        engine = self.model.engine
        shape = (engine.layers, 0, len(self.stage.inference.positions), engine.hidden)
        return torch.empty(shape, dtype=engine.dtype)

    def _positions(self, row: dict[str, Any]) -> list[int]:
        """Return the token positions that are read of a sample, in the order of the configured positions."""
        named = read_positions(row)
        return [named[position] for position in self.stage.inference.positions]

    def _said(self, sample: Sample, generated: Generated | None) -> Said:
        answer = self.model.read(
            sample.prompt, generated.ids if generated else [], given=generated is None or generated.given
        )
        return Said(sample.prompt.ids + answer.ids, self._row(sample, generated, answer))

    def _row(self, sample: Sample, generated: Generated | None, answer: Answer) -> dict[str, Any]:
        """Return a row of ANSWERS, without its tensors' rows."""
        question, prompt_tokens = sample.question, len(sample.prompt.ids)
        core = None
        if answer.text:
            core = exact_answer(
                answer.text, question["question"], self.stage.extractor, self.named.answer(question, answer.text)
            )
        span = core.spans[0] if core else None
        tokens = tokens_of_span(span, answer.offsets) if span else []
        spans = sample.found.spans if sample.found else ()
        cut_ids = [sample.prompt.ids[position] for position in sample.cut]
        decode = self.model.tokenizer.batch_decode
        return {
            "model": self.stage.model,
            "dataset": self.stage.dataset,
            "extractor": self.stage.extractor,
            "question_id": question["question_id"],
            "split": question["split"],
            "question": question["question"],
            "gold_answers": question["gold_answers"],
            "answer": answer.text,
            "answer_given": generated is not None and generated.given,
            "answer_ids": answer.ids,
            "prompt_tokens": prompt_tokens,
            "exact_question": [_span(item, question["question"]) for item in spans],
            "exact_question_source": sample.found.source if sample.found else None,
            "exact_question_tokens": sample.cut,
            "exact_question_token_text": decode([[token] for token in cut_ids]),
            "repeated_in_thought": sum(
                len(occurrences(text, answer.thought))
                for text in {item.text_in(question["question"]) for item in spans}
            ),
            "exact_answer": _span(span, answer.text) if span else None,
            "exact_answer_source": core.source if core else None,
            "exact_answer_tokens": [prompt_tokens + token for token in tokens],
            "exact_answer_token_text": decode([[answer.ids[token]] for token in tokens]),
            "exclusion": _exclusion(sample, generated, answer, span, self.examples),
            "clean_row": None,
            "knockout_row": None,
        }


def read_positions(row: Mapping[str, Any]) -> dict[str, int]:
    """Return, by its name, each token position of a sample (a row of ANSWERS) that can be read."""
    exact = row["exact_answer_tokens"]
    return {
        "last": row["prompt_tokens"] + len(row["answer_ids"]) - 1,
        "exact_answer_last": exact[-1],
        "before_exact_answer": exact[0] - 1,
    }


def _tokens(spans: Sequence[Span], offsets: list[tuple[int, int]], shift: int) -> list[int]:
    return sorted({token for span in spans for token in tokens_of_span(span.shifted(shift), offsets)})


def _span(span: Span, text: str) -> dict[str, Any]:
    return {"start": span.start, "end": span.end, "text": span.text_in(text)}


def _exclusion(
    sample: Sample, generated: Generated | None, answer: Answer, span: Span | None, examples: set[str]
) -> str | None:
    """Return why a sample has no activations, or None."""
    if normalise(sample.question["question"]) in examples:
        return "few_shot_example"
    if not sample.cut:
        return "no_exact_question"
    if sample.cut[0] == 0:
        return "exact_question_at_position_0"
    if generated is None:
        return "no_given_answer"
    if answer.unfinished_thought:
        return "truncated_thought" if answer.truncated else "unfinished_thought"
    if not answer.text:
        return "truncated_answer" if answer.truncated else "empty_answer"
    if span is None:
        return "no_exact_answer"
    if answer.truncated and span.end == len(answer.text):
        return "truncated_answer"  # perhaps in the middle of the phrase that is read
    return None


def _each(activations: Activations, indices: Sequence[int]) -> dict[int, Activations]:
    """Return the activations of each sample by its index, (layers, 1, positions, hidden) for each site."""
    return {
        index: {site: states[:, number : number + 1] for site, states in activations.items()}
        for number, index in enumerate(indices)
    }


def shard_answers(paths: Sequence[Path]) -> Iterator[pa.Table]:
    """Yield the ANSWERS of a shard from its chunks, one by one, with rows counted through all of them."""
    first = {"clean_row": 0, "knockout_row": 0}
    for path in paths:
        chunk = read_rows(path)
        for name, start in first.items():
            for row in chunk:
                if row[name] is not None:
                    row[name] += start
            first[name] = start + sum(row[name] is not None for row in chunk)
        yield pa.Table.from_pylist(chunk, ANSWERS)


def write_shard(paths: Sequence[Path], names: dict[str, Path], metadata: dict[str, Any]) -> None:
    """Write a shard's activation files from its chunks; ``names``: the file of each ``<pass>/<site>/<position>``."""
    for name, out in names.items():
        write_activations(out, [StoredTensor(path, name) for path in paths], metadata)


def _write(
    store: Store,
    path: Path,
    tensors: dict[str, torch.Tensor],
    rows: list[dict[str, Any]],
    answers: dict[Path, list[dict[str, Any]]],
) -> None:
    store.write(path, tensors, rows)
    for where, said in answers.items():
        store.write(where, {}, said)


def run_shard(
    inference: Inference, questions: pa.Table, store: Store, identity: dict[str, Any], progress: Progress
) -> list[Path]:
    """Compute the chunks of a shard that the store does not have yet, and return the paths of all.

    ``questions`` are the shard's rows of QUESTIONS in the order of their hashes, so that a larger sample begins with
    the chunks of the smaller. ``identity`` is what the content depends on besides the questions: model, code, settings.
    """
    inference.check(questions)
    size = inference.stage.inference.chunk_questions
    paths = []
    with ThreadPoolExecutor(1) as writer:
        # A chunk is written while the next one is computed.
        writing: Future[None] | None = None
        for start in range(0, max(1, len(questions)), size):
            chunk = inference.prepare(questions.slice(start, size).to_pylist())
            path = store.path({**identity, "samples": [inference.depends_on(sample) for sample in chunk]})
            if store.has(path):
                logger.info("chunk %s is finished already", path.stem)
                progress(3 * len(chunk))
            else:
                computed = inference.chunk(chunk, progress)
                if writing:
                    writing.result()
                writing = writer.submit(_write, store, path, *computed, inference.generation.fresh())
            paths.append(path)
        if writing:
            writing.result()
    return paths
