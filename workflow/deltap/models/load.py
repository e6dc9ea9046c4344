"""Loading a model from its directory, ready for knockout and checked."""

import logging
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from sentencepiece import SentencePieceProcessor
from tokenizers import Tokenizer
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    AutoTokenizer,
    GenerationConfig,
    PreTrainedTokenizerFast,
)

from deltap.errors import DeltapError
from deltap.models.directory import check_model_directory
from deltap.models.engine import Engine
from deltap.models.knockout import ATTENTION
from deltap.models.layers import refuse_unsupported
from deltap.settings import ModelSettings

logger = logging.getLogger("deltap")

_ENGLISH = "Question: Who wrote the play Hamlet (1603)?\nAnswer: William Shakespeare"


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
    incomplete, the tokenizer cannot be used, or the architecture has something that knockout cannot cut.
    """
    check_model_directory(directory)
    torch.set_num_threads(entry.threads)
    try:
        config = AutoConfig.from_pretrained(directory, trust_remote_code=False, local_files_only=True)
    except (OSError, ValueError, KeyError) as error:
        raise DeltapError(f"{directory}: transformers cannot load this model: {error}") from error
    if getattr(config, "is_encoder_decoder", False):
        raise DeltapError(
            f"{directory}: {config.model_type} is an encoder-decoder model, which is not supported; knockout needs a "
            "causal decoder"
        )
    tokenizer = load_tokenizer(directory)
    try:
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
    except (OSError, ValueError, KeyError, RuntimeError, ImportError, SafetensorError) as error:
        raise DeltapError(f"{directory}: transformers cannot load this model: {error}") from error
    refuse_unsupported(model)
    _greedy(model)
    logger.info("%s: %s, %s, %s", directory, type(model).__name__, entry.dtype, model.device)
    return tokenizer, Engine(model, entry.batch_tokens)


def load_tokenizer(directory: Path) -> Any:
    """Return the tokenizer in ``directory``, converted to a fast one where transformers can.

    Raises DeltapError if that cannot be, or if the tokenizer does not spell an English text back: transformers makes an
    empty tokenizer of files that it cannot read.
    """
    try:
        tokenizer = AutoTokenizer.from_pretrained(
            directory, trust_remote_code=False, local_files_only=True, mistral_format=False
        )
    except Exception as error:  # each family's converter has its own
        raise DeltapError(
            f"{directory}: transformers cannot load the tokenizer: {error}{_remedy(directory)}"
        ) from error
    if not tokenizer.is_fast:
        raise DeltapError(
            f"{directory}: {type(tokenizer).__name__} is a slow tokenizer without character offsets, so that it is not "
            f"known which token holds which character{_remedy(directory)}"
        )
    tokenizer = _as_written(directory, tokenizer)
    spelled = str(tokenizer.decode(tokenizer(_ENGLISH, add_special_tokens=False)["input_ids"]))
    # Some tokenizers fold case or white space, which does no harm here.
    if "".join(spelled.split()).casefold() != "".join(_ENGLISH.split()).casefold():
        raise DeltapError(f"{directory}: the tokenizer spells {_ENGLISH!r} as {spelled!r}{_remedy(directory)}")
    return tokenizer


def _as_written(directory: Path, tokenizer: Any) -> Any:
    """Return a tokenizer that gives the ids that tokenizer.json itself gives, where there is one.

    transformers builds the tokenizers of some families anew, by its own idea of the family, and can shift a blank by
    that. Then the file is used as it is.
    """
    file = directory / "tokenizer.json"
    if not file.is_file():
        _check_converted(directory, tokenizer)
        return tokenizer
    written = Tokenizer.from_file(str(file))
    written.no_truncation()
    written.no_padding()
    special = next((token.content for token in written.get_added_tokens_decoder().values() if token.special), "")
    texts = [_ENGLISH, f" {_ENGLISH}\n\n", f"{special}{_ENGLISH}", f"{special}\n{_ENGLISH}{special} {_ENGLISH}"]
    expected = [written.encode(text, add_special_tokens=False).ids for text in texts]

    def found(other: Any) -> list[list[int]]:
        return [other(text, add_special_tokens=False)["input_ids"] for text in texts]

    if found(tokenizer) != expected:
        logger.warning(
            "%s: transformers' %s gives other tokens than tokenizer.json; the file is used as it is",
            directory,
            type(tokenizer).__name__,
        )
        tokenizer = PreTrainedTokenizerFast.from_pretrained(directory, local_files_only=True)
    if found(tokenizer) != expected:
        raise DeltapError(
            f"{directory}: transformers gives other tokens than tokenizer.json; save the tokenizer again: "
            "AutoTokenizer.from_pretrained(...).save_pretrained(...)"
        )
    return tokenizer


def _check_converted(directory: Path, tokenizer: Any) -> None:
    """Refuse a tokenizer that was converted from a SentencePiece file and gives other tokens than that.

    transformers converts by its idea of the family, which may put a blank where the file has none.
    """
    file = directory / "tokenizer.model"
    if not file.is_file():
        return
    written = SentencePieceProcessor(model_file=str(file))
    for text in (_ENGLISH, f"{_ENGLISH}\n\n{_ENGLISH}"):
        if tokenizer(text, add_special_tokens=False)["input_ids"] != written.encode(text):
            raise DeltapError(
                f"{directory}: converted to a fast tokenizer, tokenizer.model gives other tokens than by itself; take "
                "tokenizer.json from the model's repository, or name the right tokenizer_class in tokenizer_config.json"
            )


def _remedy(directory: Path) -> str:
    if (directory / "tokenizer.json").is_file():
        return ""
    names = [path.name for path in directory.glob("*.model")]
    if names:
        return (
            f"; there is no tokenizer.json, and {names[0]} cannot be converted. Take tokenizer.json from the model's "
            "repository, or name the right tokenizer_class in tokenizer_config.json"
        )
    return "; there is no tokenizer.json. Take it from the model's repository, or use a model that has one"


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
