"""What the benchmark measures with: the demo's model and the questions that come with the project."""

from dataclasses import dataclass
from pathlib import Path

import yaml

from deltap.errors import DeltapError
from deltap.exact.question import exact_question
from deltap.exact.spans import tokens_of_span
from deltap.models.language_model import LanguageModel, load_language_model
from deltap.questions.build import question_table
from deltap.run import Run

ROOT = Path(__file__).parents[1]
DATASET = "popqa-style"
MODELS = {"few-shot": "smollm2-135m-few-shot", "chat": "smollm2-135m-chat"}
"""Of the demo: its model asked with few-shot prompts, and by its chat template."""


@dataclass(frozen=True)
class Samples:
    """Answered questions, ready for both passes."""

    sequences: list[list[int]]
    positions: list[list[int]]
    """In each the last token of the answer."""
    cuts: list[list[int]]
    prompts: list[int]
    """Of each, how many tokens are the prompt's."""

    def __len__(self) -> int:
        return len(self.sequences)

    def first(self, number: int) -> "Samples":
        """Return the first ``number`` of them."""
        return Samples(self.sequences[:number], self.positions[:number], self.cuts[:number], self.prompts[:number])

    @property
    def tokens(self) -> float:
        """Tokens of a sequence, on average."""
        return sum(map(len, self.sequences)) / len(self)

    def behind(self, prefix: list[int], new: list[int]) -> "Samples":
        """Return the samples with what all of them begin with, ``prefix``, exchanged for ``new``."""
        shift = len(new) - len(prefix)
        return Samples(
            [new + sequence[len(prefix) :] for sequence in self.sequences],
            [[position + shift for position in row] for row in self.positions],
            [[position + shift for position in row] for row in self.cuts],
            [length + shift for length in self.prompts],
        )


def demo(models: Path) -> Run:
    """Return the demo's run, whose models are in the folder ``models``."""
    config = {}
    for name in ("config.yaml", "demo.yaml"):
        config |= yaml.safe_load((ROOT / "config" / name).read_text("utf-8"))
    return Run({**config, "paths": {"models": str(models)}}, ROOT / "config")


def load(run: Run, kind: str, layers: int | None = None) -> LanguageModel:
    """Return the demo's model, asked as ``kind`` of `MODELS` says, with its first ``layers`` layers.

    Raises DeltapError where it has not been fetched.
    """
    name = MODELS[kind]
    directory = run.model_directory(name)
    if not (directory / "config.json").is_file():
        raise DeltapError(f"{directory}: the demo's model is not there; 'make demo' fetches it (--models says where)")
    stage = run.inference_stage(name, DATASET, run.settings.extractors[0])
    model = load_language_model(directory, stage.entry, stage.prompt)
    if layers:
        keep_layers(model, layers)
    return model


def keep_layers(model: LanguageModel, layers: int) -> None:
    """Take all layers but the first ``layers`` out of the model."""
    hf, engine = model.engine.model, model.engine
    hf.model.layers = hf.model.layers[:layers]  # type: ignore[union-attr, index]
    hf.config.num_hidden_layers = engine.layers = layers  # type: ignore[union-attr]
    engine.share_prefix(model.prompter.prefix_ids)


def of_length(prefix: list[int], tokens: int) -> list[int]:
    """Return a prefix of so many tokens: the given one again and again."""
    return (prefix * -(-tokens // len(prefix)))[:tokens]


def samples(run: Run, model: LanguageModel, number: int) -> Samples:
    """Return ``number`` of the bundled questions, answered by the model itself, in the pipeline's order.

    Questions without an answer or without exact question tokens are passed over.
    """
    rows, _ = question_table(run.questions_stage(DATASET))
    found = Samples([], [], [], [])
    step = 2 * number
    for start in range(0, len(rows), step):
        asked = rows[start : start + step]
        prompts = [model.prompter(row["question"]) for row in asked]
        for row, prompt, answer in zip(asked, prompts, model.generate(prompts)[0], strict=True):
            core = exact_question(row["question"], row["subject"], row["property"], "auto")
            spans = [span.shifted(prompt.question_start) for span in core.spans] if core else []
            cut = sorted({token for span in spans for token in tokens_of_span(span, prompt.offsets)})
            if answer and cut and cut[0] > 0:
                found.sequences.append(prompt.ids + answer)
                found.positions.append([len(found.sequences[-1]) - 1])
                found.cuts.append(cut)
                found.prompts.append(len(prompt.ids))
        if len(found) >= number:
            return found.first(number)
    raise DeltapError(f"only {len(found)} of the {len(rows)} bundled questions can be used; ask for fewer")
