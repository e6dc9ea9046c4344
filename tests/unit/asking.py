"""The inference job of a model that is in memory already."""

from pathlib import Path
from typing import Any

from deltap.generation import Generation
from deltap.inference import Inference
from deltap.models.engine import Engine
from deltap.models.language_model import LanguageModel
from deltap.models.prompts import Prompter
from deltap.named import Named
from deltap.settings import InferenceStage
from deltap.store import Store


def inference_job(
    engine: Engine,
    tokenizer: Any,
    stage: InferenceStage,
    ends: set[int],
    store: Path,
    named: Named | None = None,
    **answers: Any,
) -> Inference:
    """Return the job; ``answers`` are given or generated ones, as `Generation` takes them."""
    prompter = Prompter(tokenizer, stage.entry.kind, stage.prompt, stage.entry.thinking)
    engine.share_prefix(prompter.prefix_ids)
    model = LanguageModel(engine, tokenizer, prompter, ends, stage.entry, "of no directory")
    return Inference(Generation(model, stage.model, stage.dataset, Store(store), {"model": 1}, **answers), stage, named)
