"""Loading a model from its directory, ready for knockout and checked."""

import copy
import logging
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
import transformers
from sentencepiece import SentencePieceProcessor
from tokenizers import Tokenizer
from transformers import (
    AutoConfig,
    AutoTokenizer,
    GenerationConfig,
    PreTrainedTokenizerFast,
)

from deltap import ranks
from deltap.errors import DeltapError
from deltap.manifest import read_manifest, verify
from deltap.models.directory import check_model_directory
from deltap.models.engine import Engine
from deltap.models.engines import auto_tp, device_map, single, tensor_plan
from deltap.models.layers import refuse_unsupported
from deltap.models.memory import out_of_memory
from deltap.models.parallel import ParallelEngine, join
from deltap.models.split import check_split
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

    Of several ranks each returns its part's. Nothing is fetched, pickled weights are not loaded, nor is code of the
    directory unless the entry says so. Raises DeltapError if the directory is incomplete, the tokenizer cannot be used,
    or the architecture has something that knockout cannot cut.
    """
    check_model_directory(directory)
    if ranks.here().first and (manifest := read_manifest(directory)):
        verify(manifest, directory)
    trusted = entry.trust_remote_code
    if trusted:
        code = ", ".join(sorted(path.name for path in directory.glob("*.py")))
        logger.warning("%s: trust_remote_code: the code in it is run (%s)", directory, code or "there is none")
    if ranks.here().number != entry.ranks:
        raise DeltapError(
            f"{ranks.here().number} processes, but the model's entry says ranks: {entry.ranks}; start the script by "
            f"scripts/launch.py --ranks {entry.ranks}"
        )
    if entry.ranks > 1:
        check_split(directory, entry.engine, entry.ranks)
    torch.set_num_threads(entry.threads)
    try:
        config = AutoConfig.from_pretrained(directory, trust_remote_code=trusted, local_files_only=True)
    except (OSError, ValueError, KeyError) as error:
        raise DeltapError(f"{directory}: transformers cannot load this model: {error}{_code(directory)}") from error
    if getattr(config, "is_encoder_decoder", False):
        raise DeltapError(
            f"{directory}: {config.model_type} is an encoder-decoder model, which is not supported; knockout needs a "
            "causal decoder"
        )
    tokenizer = load_tokenizer(directory, trusted)
    remedy = "give the model more gpus with engine: accelerate, or engine: device_map; on the host, more memory_mb"
    with out_of_memory(f"{directory} in {entry.dtype}", remedy):
        engine = _engine(directory, config, entry)
    refuse_unsupported(engine.model)
    _greedy(engine.model)
    held = f"{entry.engine}, {engine.ranks} ranks" if engine.ranks > 1 else entry.engine
    logger.info("%s: %s, %s, %s, %s", directory, type(engine.model).__name__, entry.dtype, engine.device, held)
    return tokenizer, engine


def _engine(directory: Path, config: Any, entry: ModelSettings) -> Engine:
    """Return the engine that the entry names, with the model's weights."""
    dtype, place, trusted = getattr(torch, entry.dtype), device(entry.device), entry.trust_remote_code
    if entry.engine == "single":
        return Engine(single.load(directory, config, dtype, place, trusted), entry.batch_tokens)
    if entry.engine == "device_map":
        model, first = device_map.load(directory, config, dtype, place, entry.max_memory, trusted)
        return Engine(model, entry.batch_tokens, first)
    place = join(place)
    if entry.engine == "accelerate":
        model = tensor_plan.load(directory, config, dtype, entry.ranks, trusted)
    else:
        model = auto_tp.load(directory, config, dtype, place, entry.ranks, trusted)
    return ParallelEngine(
        model, entry.batch_tokens, place, lambda: _first_layer(directory, config, dtype, place, trusted)
    )


def _first_layer(directory: Path, config: Any, dtype: torch.dtype, place: torch.device, trusted: bool) -> Any:
    """Return the model in ``directory`` without its other layers, in one piece."""
    config = copy.deepcopy(config)
    text = config.get_text_config()
    text.num_hidden_layers = 1
    if getattr(text, "layer_types", None):
        text.layer_types = text.layer_types[:1]
    before = transformers.utils.logging.get_verbosity()
    transformers.utils.logging.set_verbosity_error()  # it would list the other layers' weights
    try:
        return single.load(directory, config, dtype, place, trusted)
    finally:
        transformers.utils.logging.set_verbosity(before)


def load_tokenizer(directory: Path, trusted: bool = False) -> Any:
    """Return the tokenizer in ``directory``, converted to a fast one where transformers can.

    Code in the directory is run only where it is ``trusted``.
    Raises DeltapError if that cannot be, or if the tokenizer does not spell an English text back: transformers makes an
    empty tokenizer of files that it cannot read.
    """
    try:
        tokenizer = AutoTokenizer.from_pretrained(
            directory, trust_remote_code=trusted, local_files_only=True, mistral_format=False
        )
    except Exception as error:  # each family's converter has its own
        raise DeltapError(
            f"{directory}: transformers cannot load the tokenizer: {error}{_code(directory) or _remedy(directory)}"
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


def _code(directory: Path) -> str:
    """Return what one may do where a model needs its own code, "" where it has none."""
    names = sorted(path.name for path in directory.glob("*.py"))
    if not names:
        return ""
    return (
        f"; its own code ({', '.join(names)}) is not run unless the model's entry says trust_remote_code: true, which "
        "is for code that you have read"
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


def engine_facts(engine: Engine, entry: ModelSettings) -> dict[str, Any]:
    """Return what of the engine its numbers depend on, as it really is."""
    facts = {
        "engine": entry.engine,
        "ranks": engine.ranks,
        "device": engine.device.type,
        "threads": torch.get_num_threads(),
    }
    return {**facts, "deepspeed": version("deepspeed")} if entry.engine == "deepspeed" else facts
