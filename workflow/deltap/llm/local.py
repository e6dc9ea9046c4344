"""A language model run by the project's own engine."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from deltap.errors import DeltapError
from deltap.llm.ask import Progress, Task
from deltap.models.directory import revision
from deltap.models.engine import NotFinite
from deltap.models.language_model import LanguageModel, load_language_model
from deltap.models.prompts import Prompter
from deltap.settings import ModelSettings, PromptSettings


class LocalModel:
    """Asks a model directory, greedily."""

    def __init__(self, directory: Path, entry: ModelSettings) -> None:
        self._directory = directory
        self._entry = entry
        self._revision = revision(directory)
        self._model: LanguageModel | None = None
        if entry.ranks > 1:  # the ranks meet before the first one finds out whether there is something to ask
            self._model = self._load(PromptSettings())

    def identity(self) -> dict[str, Any]:
        """Return the model's revision and how it is run."""
        entry = self._entry.model_dump(mode="json", include={"kind", "thinking", "dtype", "max_new_tokens"})
        return {"model_revision": self._revision, **entry}

    def replies(self, task: Task, texts: Sequence[str], progress: Progress) -> list[str]:
        """Return the reply to each text, without a thought. Raises DeltapError for a model that overflows."""
        model = self._asked_for(task)
        prompts = [model.prompter(text) for text in texts]
        try:
            generated, _ = model.generate(prompts, progress)
        except NotFinite as error:
            raise DeltapError(f"{self._directory}: {error}; try 'dtype: bfloat16' or 'float32' for the model") from None
        return [model.read(prompt, ids).text for prompt, ids in zip(prompts, generated, strict=True)]

    def _asked_for(self, task: Task) -> LanguageModel:
        """Return the model with the task's prompt; it is loaded when the first text needs it."""
        if self._model is None:
            self._model = self._load(task.prompt())
        model = self._model
        prompter = Prompter(model.tokenizer, self._entry.kind, task.prompt(), self._entry.thinking)
        model.engine.share_prefix(prompter.prefix_ids)
        return replace(model, prompter=prompter)

    def _load(self, prompt: PromptSettings) -> LanguageModel:
        model = load_language_model(self._directory, self._entry, prompt)
        if model.revision != self._revision:
            raise DeltapError(f"{self._directory}: another model since this job began; start again")
        return model
