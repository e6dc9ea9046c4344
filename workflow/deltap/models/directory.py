"""Model directories on disk: what they must hold, and which model it is."""

import hashlib
import json
from pathlib import Path

from deltap.errors import DeltapError
from deltap.files import digest, file_sha256

MANIFEST = "manifest.json"
"""Written last into a fetched model's directory: source, revision and files."""

_TOKENIZERS = ("tokenizer.json", "tokenizer.model", "vocab.json", "spiece.model")
_SMALL = 16 * 2**20
_SAMPLES, _SAMPLE = 64, 2**16


def check_model_directory(directory: Path) -> None:
    """Raise DeltapError unless ``directory`` holds a configuration, safetensors weights and a tokenizer."""
    if not directory.is_dir():
        raise DeltapError(f"{directory}: no such model directory")
    if not (directory / "config.json").is_file():
        raise DeltapError(f"{directory}: no config.json, so this is not a transformers model directory")
    if not any(directory.glob("*.safetensors")):
        pickles = any(directory.glob("*.bin")) or any(directory.glob("*.pt"))
        remedy = (
            "; only pickled weights are there, which are never loaded: convert them to safetensors" if pickles else ""
        )
        raise DeltapError(f"{directory}: no weights (*.safetensors){remedy}")
    if not any((directory / name).is_file() for name in _TOKENIZERS):
        raise DeltapError(f"{directory}: no tokenizer ({', '.join(_TOKENIZERS)})")
    index = directory / "model.safetensors.index.json"
    if index.is_file():
        try:
            shards = set(json.loads(index.read_text(encoding="utf-8"))["weight_map"].values())
        except (ValueError, KeyError, AttributeError) as error:
            raise DeltapError(f"{index}: not a readable weight index ({error}); fetch the model again") from None
        missing = sorted(shard for shard in shards if not (directory / shard).is_file())
        if missing:
            raise DeltapError(f"{directory}: weights are incomplete, missing {', '.join(missing)}")


def revision(directory: Path) -> str:
    """Return a digest of a model directory: the same model gives the same text, wherever it lies.

    Small files count whole. Of weights, the size and 64 blocks spread over the file count, because reading 65 GB to
    name a model would take minutes.
    """
    parts = {}
    for path in sorted(directory.iterdir()):
        if path.suffix in {".json", ".jinja", ".model", ".txt", ".safetensors"} and path.name != MANIFEST:
            parts[path.name] = file_sha256(path) if path.stat().st_size <= _SMALL else _sampled(path)
    return digest(parts)


def _sampled(path: Path) -> str:
    size = path.stat().st_size
    seen = hashlib.sha256(str(size).encode())
    with path.open("rb") as stream:
        for index in range(_SAMPLES):
            stream.seek((size - _SAMPLE) * index // (_SAMPLES - 1))
            seen.update(stream.read(_SAMPLE))
    return seen.hexdigest()
