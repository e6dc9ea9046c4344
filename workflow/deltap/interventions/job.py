"""The interventions job: the test samples of one shard under other cuts than that of the exact question.

Answers, exact tokens and positions are those of the inference job; prompts are rendered again. Everything goes to the
store in chunks first, as there: the cuts of a chunk of questions are one chunk of the store, and windows and heads,
which depend on the reference layer k* as well, another.
"""

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from deltap.errors import DeltapError
from deltap.exact.spans import Span, tokens_of_span
from deltap.generation import Progress, refuse_bad_numbers
from deltap.inference import read_positions
from deltap.interventions.mass import Attention
from deltap.interventions.tokens import Drawn, PromptTokens, dose, random_mass, random_tokens
from deltap.models.knockout import Cut
from deltap.models.language_model import LanguageModel
from deltap.models.windows import Window
from deltap.probe import reference_layer
from deltap.settings import InterventionsStage
from deltap.store import Store, read_rows
from deltap.tables import ANSWERS, PROBES, read_table

logger = logging.getLogger("deltap")

Row = dict[str, Any]
Chunk = tuple[dict[str, torch.Tensor], list[Row]]
"""Tensors by ``<intervention>.<draw>``, of shape (places, samples, hidden), and rows of INTERVENTIONS without shard."""
_COLUMNS = ["question_id", "question", "split", "exclusion", "answer_ids", "prompt_tokens"]
_COLUMNS += ["exact_question_tokens", "exact_answer_tokens"]


@dataclass(frozen=True)
class Tested:
    """A usable test sample."""

    question_id: str
    ids: list[int]
    """Of prompt and answer."""
    place: PromptTokens
    position: int
    """The token that is read."""
    windows: bool
    """Whether it is cut in windows of layers too."""
    heads: bool


class Interventions:
    """Cuts something else in one model and reads its activations."""

    def __init__(self, model: LanguageModel, stage: InterventionsStage, k_star: int | None) -> None:
        """``k_star``: the reference layer, None where there are no probes.

        Raises DeltapError where a window or a layer of heads is not in the model.
        """
        self.model = model
        self.stage = stage
        self.k_star = k_star
        layers = model.engine.layers
        windows, heads = stage.interventions.windows, stage.interventions.heads
        wide = [width for width in (windows.widths if windows else ()) if width > layers]
        high = [layer for layer in (heads.layers if heads else ()) if layer >= layers]
        for key, wrong in (("windows.widths", wide), ("heads.layers", high)):
            if wrong:
                raise DeltapError(
                    f"controls.interventions.{key}: {', '.join(map(str, wrong))}, but {stage.model} has {layers} layers"
                )

    def prepare(self, rows: Sequence[Row], windows: set[str], heads: set[str]) -> list[Tested]:
        """Return the usable test samples of some rows of ANSWERS.

        ``windows`` and ``heads``: by question id, those that are cut in windows and single heads too. Raises
        DeltapError where a prompt has not the number of tokens that it had.
        """
        return [self._tested(row, windows, heads) for row in rows if _usable(row)]

    def _tested(self, row: Row, windows: set[str], heads: set[str]) -> Tested:
        name, asked = row["question_id"], row["question"]
        prompt = self.model.prompter(asked)
        if len(prompt.ids) != row["prompt_tokens"]:
            raise DeltapError(
                f"{self.stage.model}, {self.stage.dataset}, question {name!r}: its prompt has {len(prompt.ids)} tokens "
                f"and had {row['prompt_tokens']} when it was answered; the answers are older than the model's "
                "tokenizer or prompt: delete them and run snakemake again"
            )
        question = tokens_of_span(Span(prompt.question_start, prompt.question_start + len(asked)), prompt.offsets)
        place = PromptTokens(len(prompt.ids), question, row["exact_question_tokens"])
        position = read_positions(row)[self.stage.position]
        return Tested(name, prompt.ids + row["answer_ids"], place, position, name in windows, name in heads)

    @staticmethod
    def depends_on(sample: Tested, kind: str) -> dict[str, Any]:
        """Return what a sample's numbers of a ``kind`` depend on besides settings and code, as a JSON value."""
        place = sample.place
        return {
            **({"windows": sample.windows, "heads": sample.heads} if kind == "restarted" else {}),
            "question_id": sample.question_id,
            "ids": sample.ids,
            "prompt": place.prompt,
            "question": list(place.question),
            "exact_question": list(place.exact),
            "position": sample.position,
        }

    def cuts(self, samples: Sequence[Tested], progress: Progress) -> Chunk:
        """Return the activations of a chunk's samples at every layer, under each cut, and its rows.

        ``progress`` is told the number of passes done, one for each sample and cut besides the clean one.
        """
        engine, site = self.model.engine, self.stage.site
        attention = self._attention(samples, progress)
        drawn = {
            (name, draw): [self._drawn(name, draw, sample, attention[sample.question_id]) for sample in samples]
            for name, draws in self.stage.interventions.draws.items()
            for draw in range(draws)
        }
        random = [key for key in drawn if key[0].startswith("random")]
        # A random cut that reaches into the prefix, which then cannot be shared, does not keep the others from it.
        together = [[key] for key in random] + [[key for key in drawn if key not in random]]
        tensors: dict[str, torch.Tensor] = {}
        for keys in together:
            passes = [self._cut(name, samples, drawn[name, draw]) for name, draw in keys]
            found = engine.passes(*_sequences(samples), (site,), passes, progress)
            for (name, draw), activations in zip(keys, found, strict=True):
                states = activations.get(site, torch.empty(engine.layers, 0, 1, engine.hidden, dtype=engine.dtype))
                tensors[f"{name}.{draw}"] = self._checked(states, samples, name)
        rows = [
            self._row(number, sample, name, draw, of_each[number], attention[sample.question_id])
            for (name, draw), of_each in drawn.items()
            for number, sample in enumerate(samples)
        ]
        return tensors, rows

    def _attention(self, samples: Sequence[Tested], progress: Progress) -> dict[str, Attention]:
        firsts = [min(sample.place.question) for sample in samples]
        weights = self.model.engine.attention([sample.ids for sample in samples], firsts, progress)
        return {
            sample.question_id: Attention(each.numpy(), first)
            for sample, each, first in zip(samples, weights, firsts, strict=True)
        }

    def _drawn(self, name: str, draw: int, sample: Tested, attention: Attention) -> Drawn:
        place = sample.place
        key = (self.stage.seed, sample.question_id, name, draw)
        if name == "random_tokens":
            return random_tokens(place, *key)
        if name == "random_mass":
            return random_mass(place, attention.removed, *key)
        if name == "answer_queries":
            return Drawn(sorted(place.exact), len(place.exact))
        # One key for all doses, so that the larger contain the smaller.
        return dose(place, int(name.removeprefix("dose_")), self.stage.seed, sample.question_id, "dose")

    def _cut(self, name: str, samples: Sequence[Tested], drawn: Sequence[Drawn]) -> Cut:
        answers = [sample.place.prompt for sample in samples] if name == "answer_queries" else None
        return Cut([each.tokens for each in drawn], first_query=answers)

    def _row(self, number: int, sample: Tested, name: str, draw: int, drawn: Drawn, attention: Attention | None) -> Row:
        exact, first_query = sample.place.exact, sample.place.prompt if name == "answer_queries" else 0
        return {
            "model": self.stage.model,
            "dataset": self.stage.dataset,
            "extractor": self.stage.extractor,
            "question_id": sample.question_id,
            "intervention": name,
            "draw": draw,
            "tokens": drawn.tokens,
            "from_question": drawn.from_question,
            "exact_question_tokens": len(exact),
            "mass": attention.removed(drawn.tokens, first_query) if attention else None,
            "exact_mass": attention.removed(exact) if attention else None,
            "row": number,
        }

    def restarted(self, samples: Sequence[Tested], progress: Progress) -> Chunk:
        """Return the activations of a chunk's samples at one layer, cut in each window and each head, and its rows.

        ``progress`` is told the number of samples done, for windows of each width and for heads.
        """
        engine, site = self.model.engine, self.stage.site
        tensors: dict[str, torch.Tensor] = {}
        rows: list[Row] = []
        for name in self.stage.interventions.restarted:
            windows = self._windows(name)
            chosen = [sample for sample in samples if (sample.heads if name == "heads" else sample.windows)]
            if self.k_star is None or not chosen:
                tensors[f"{name}.0"] = torch.empty(len(windows), 0, engine.hidden, dtype=engine.dtype)
                continue
            keys = [list(sample.place.exact) for sample in chosen]
            states = engine.windows(*_sequences(chosen), (site,), keys, windows, progress)[site]
            tensors[f"{name}.0"] = self._checked(states, chosen, name)
            rows += [
                self._row(number, sample, name, 0, Drawn(sorted(sample.place.exact), len(sample.place.exact)), None)
                for number, sample in enumerate(chosen)
            ]
        return tensors, rows

    def _windows(self, name: str) -> list[Window]:
        """Return the windows of an intervention: by their first layers, or by the layers and numbers of heads."""
        engine, settings = self.model.engine, self.stage.interventions
        reference = self.k_star or 0
        if name == "heads":
            assert settings.heads is not None
            return [
                Window(layer, layer, reference, head) for layer in settings.heads.layers for head in range(engine.heads)
            ]
        assert settings.windows is not None
        width, at_end = int(name.removeprefix("window_")), settings.windows.read_at == "end"
        lasts = range(width - 1, engine.layers)
        return [Window(last - width + 1, last, last if at_end else reference) for last in lasts]

    def _checked(self, states: torch.Tensor, samples: Sequence[Tested], name: str) -> torch.Tensor:
        what = f"{self.stage.model}, {self.stage.dataset}, {name}, site {self.stage.site}"
        refuse_bad_numbers(states, [sample.question_id for sample in samples], what)
        return states[:, :, 0]


def _sequences(samples: Sequence[Tested]) -> tuple[list[list[int]], list[list[int]]]:
    return [sample.ids for sample in samples], [[sample.position] for sample in samples]


def _usable(row: Mapping[str, Any]) -> bool:
    return row["exclusion"] is None and row["split"] == "test"


def read_k_star(path: Path, site: str, position: str) -> int | None:
    """Return the reference layer of a site and position from a PROBES table; None where there are no probes."""
    rows = [
        row
        for row in read_table(path, PROBES).to_pylist()
        if (row["site"], row["position"], row["split"]) == (site, position, "validation")
    ]
    if not rows or any(row["auroc"] is None for row in rows):
        return None
    return reference_layer([row["layer"] for row in rows], [row["auroc"] for row in rows])


def read_answers(paths: Sequence[Path], shard: int) -> tuple[list[Row], list[str]]:
    """Return the rows of ANSWERS of one shard, and the ids of the usable test samples of all shards, in their order."""
    first = [row for path in paths for row in read_table(path, ANSWERS, _COLUMNS[:4]).to_pylist() if _usable(row)]
    rows = read_table(paths[shard], ANSWERS, _COLUMNS).to_pylist()
    return rows, [row["question_id"] for row in first]


def run_shard(
    job: Interventions,
    rows: Sequence[Row],
    tested: Sequence[str],
    store: Store,
    identity: Mapping[str, Any],
    progress: Progress,
) -> dict[str, list[Path]]:
    """Compute the chunks of a shard that the store does not have yet; return the paths of all, of each kind.

    Kinds are ``cuts`` and ``restarted``. ``rows`` are the shard's ANSWERS, ``tested`` the ids of the usable test
    samples of all shards, of which the first are cut in windows and heads. ``identity`` is what the content depends on
    besides: model and code.
    """
    settings, size = job.stage.interventions, job.stage.chunk_questions
    windows, heads = _first(job.stage, tested)
    known = job.stage.model_dump(mode="json", exclude={"interventions", "chunk_questions"})
    every = settings.model_dump(mode="json")
    by = {
        "cuts": {**known, **{name: every[name] for name in ("random_tokens", "random_mass", "answer_queries", "dose")}},
        "restarted": {**known, **{name: every[name] for name in ("windows", "heads")}, "k_star": job.k_star},
    }
    compute = {"cuts": job.cuts, **({"restarted": job.restarted} if settings.restarted else {})}
    paths: dict[str, list[Path]] = {kind: [] for kind in by}
    for start in range(0, max(1, len(rows)), size):
        samples = job.prepare(rows[start : start + size], windows, heads)
        for kind in compute:
            chosen = [sample for sample in samples if kind == "cuts" or sample.windows or sample.heads]
            depends = [job.depends_on(sample, kind) for sample in chosen]
            path = store.path({**identity, "stage": f"interventions, {kind}", "settings": by[kind], "samples": depends})
            if store.has(path):
                logger.info("chunk %s is finished already", path.stem)
                progress(_steps(job, [sample.question_id for sample in chosen], windows, heads)[kind])
            else:
                store.write(path, *compute[kind](chosen, progress))
            paths[kind].append(path)
    return paths


def steps(job: Interventions, rows: Sequence[Row], tested: Sequence[str]) -> int:
    """Return how many steps `run_shard` tells of."""
    usable = [row["question_id"] for row in rows if _usable(row)]
    return sum(_steps(job, usable, *_first(job.stage, tested)).values())


def _steps(job: Interventions, question_ids: Sequence[str], windows: set[str], heads: set[str]) -> dict[str, int]:
    settings = job.stage.interventions
    widths = len(settings.windows.widths) if settings.windows else 0
    restarted = sum(widths * (name in windows) + (name in heads) for name in question_ids)
    return {
        "cuts": len(question_ids) * (1 + sum(settings.draws.values())),
        "restarted": 0 if job.k_star is None else restarted,
    }


def _first(stage: InterventionsStage, tested: Sequence[str]) -> tuple[set[str], set[str]]:
    """Return which test samples are cut in windows, and which in single heads."""
    windows, heads = stage.interventions.windows, stage.interventions.heads
    return (
        set(tested[: windows.samples]) if windows else set(),
        set(tested[: heads.samples]) if heads else set(),
    )


def shard_rows(paths: Sequence[Path], shard: int) -> Iterator[Row]:
    """Yield the INTERVENTIONS of a shard from its chunks, with rows counted through all of them."""
    first: dict[tuple[str, int], int] = {}
    for path in paths:
        rows = read_rows(path)
        for row in rows:
            key = row["intervention"], row["draw"]
            yield {**row, "shard": shard, "row": first.get(key, 0) + row["row"]}
        for key in [(row["intervention"], row["draw"]) for row in rows]:
            first[key] = first.get(key, 0) + 1
