"""Loading a model from its directory, ready for knockout and checked."""

import logging
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer, GenerationConfig

from deltap.errors import DeltapError
from deltap.models.directory import check_model_directory
from deltap.models.engine import Engine
from deltap.models.knockout import ATTENTION
from deltap.models.layers import refuse_unsupported
from deltap.settings import ModelSettings

logger = logging.getLogger("deltap")


def device(name: str) -> torch.device:
    """Return the device called ``name``; ``auto`` is the first of cuda, mps and cpu that is there."""
    there = {"cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available(), "cpu": True}
    if name == "auto":
        name = next(kind for kind, present in there.items() if present)
    if not there[name]:
        raise DeltapError(f"device '{name}' is not available here; set 'device: auto' or 'device: cpu' for the model")
    return torch.device(name)


def load(directory: Path, entry: ModelSettings) -> tuple[Any, Engine]:
    """Return the tokenizer and the engine of the model in ``directory``.

    Nothing is fetched, pickled weights and remote code are not loaded. Raises DeltapError if the directory is
    incomplete, or the architecture has something that knockout cannot cut.
    """
    check_model_directory(directory)
    torch.set_num_threads(entry.threads)
    try:
        config = AutoConfig.from_pretrained(directory, trust_remote_code=False, local_files_only=True)
        tokenizer = AutoTokenizer.from_pretrained(directory, trust_remote_code=False, local_files_only=True)
        model = AutoModelForCausalLM.from_pretrained(
            directory,
            config=config,
            dtype=getattr(torch, entry.dtype),
            device_map={"": device(entry.device)},
            attn_implementation=ATTENTION,
            trust_remote_code=False,
            local_files_only=True,
            use_safetensors=True,
        )
    except (OSError, ValueError, KeyError, RuntimeError, SafetensorError) as error:
        raise DeltapError(f"{directory}: transformers cannot load this model: {error}") from error
    refuse_unsupported(model)
    _greedy(model)
    logger.info("%s: %s, %s, %s", directory, type(model).__name__, entry.dtype, model.device)
    return tokenizer, Engine(model, entry.batch_tokens)


def _greedy(model: Any) -> None:
    """Drop sampling settings that the model ships with, which would otherwise draw a warning for each batch."""
    ends = model.generation_config.eos_token_id
    model.generation_config = GenerationConfig(
        bos_token_id=model.generation_config.bos_token_id, eos_token_id=ends, do_sample=False
    )


def end_ids(tokenizer: Any, engine: Engine, at_newline: bool) -> set[int]:
    """Return the token ids that end an answer: every end token, and with ``at_newline`` every token with a newline."""
    configured = engine.model.generation_config.eos_token_id  # type: ignore[union-attr]
    ends = {*(configured if isinstance(configured, list) else [configured]), tokenizer.eos_token_id} - {None}
    if at_newline:
        size = len(tokenizer)
        texts = tokenizer.batch_decode([[token] for token in range(size)])
        ends |= {token for token, text in enumerate(texts) if "\n" in text}
    if not ends:
        raise DeltapError(f"{tokenizer.name_or_path}: the model has no end token, so its answers would never end")
    return ends
