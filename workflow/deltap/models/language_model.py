"""A language model that can be asked: its engine with its tokenizer, prompts and end tokens."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from deltap.files import unchanged
from deltap.models.answers import Answer, decode, read_answer
from deltap.models.directory import model_files, revision
from deltap.models.engine import Engine, Places
from deltap.models.load import end_ids, load
from deltap.models.prompts import Prompt, Prompter
from deltap.models.trace import Activations
from deltap.settings import ModelSettings, PromptSettings


@dataclass(frozen=True)
class LanguageModel:
    """A loaded model, and how it is asked."""

    engine: Engine
    tokenizer: Any
    prompter: Prompter
    ends: set[int]
    """Token ids that end an answer."""
    entry: ModelSettings
    revision: str
    """Digest of its directory, see `deltap.models.directory.revision`."""

    def generate(
        self,
        prompts: Sequence[Prompt],
        progress: Callable[[int], object] = lambda done: None,
        sites: tuple[str, ...] = (),
        places: Places | None = None,
    ) -> tuple[list[list[int]], dict[int, Activations]]:
        """Return the ids of the greedy answer to each prompt, and activations as `Engine.generate_and_read` reads them.

        Raises NotFinite for a model that overflows.
        """
        ids = [prompt.ids for prompt in prompts]
        return self.engine.generate_and_read(ids, self.ends, self.entry.max_new_tokens, sites, places, progress)

    def read(self, prompt: Prompt, ids: Sequence[int], given: bool = False) -> Answer:
        """Return the answer that ``ids`` spell, generated ones or those of a ``given`` answer, which is never cut."""
        truncated = not given and len(ids) >= self.entry.max_new_tokens
        return read_answer(self.tokenizer, prompt.ids, list(ids), truncated, self.entry.thinking)

    def spell(self, prompt: Prompt, answer: str) -> list[int]:
        """Return the ids that spell an answer which is not the model's own, as it would have begun it itself.

        After ``Answer:`` of a few-shot prompt that is with a blank. Where the tokenizer cannot spell the answer to the
        letter, because it normalises texts, the ids spell what it makes of it.
        """
        wanted = f" {answer}" if self.entry.kind == "base" else answer
        encode = {"add_special_tokens": False, "split_special_tokens": True}
        tried = [self.tokenizer(text, **encode)["input_ids"] for text in dict.fromkeys((wanted, answer))]
        spelled = [decode(self.tokenizer, prompt.ids[-4:], ids)[0] for ids in tried]
        # Tokenizers such as SentencePiece's put a blank before every text by themselves.
        exact = [ids for ids, text in zip(tried, spelled, strict=True) if text == wanted]
        nearly = [ids for ids, text in zip(tried, spelled, strict=True) if text.strip() == answer]
        return [*exact, *nearly, *tried][0]


def load_language_model(directory: Path, entry: ModelSettings, prompt: PromptSettings) -> LanguageModel:
    """Return the model in ``directory``, asked by ``prompt``.

    Raises DeltapError as `load` and `Prompter`, and where a file of the directory changes meanwhile.

    Of several ranks only the first one returns; the others do what it asks for, and end with the job.
    """
    with unchanged(model_files(directory)):
        tokenizer, engine = load(directory, entry)
        engine.follow()
        made_of = revision(directory)
    prompter = Prompter(tokenizer, entry.kind, prompt, entry.thinking)
    engine.share_prefix(prompter.prefix_ids)
    return LanguageModel(engine, tokenizer, prompter, end_ids(tokenizer, engine, entry.kind == "base"), entry, made_of)
