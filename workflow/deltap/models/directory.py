"""Model directories on disk: what they must hold, and which model it is."""

import json
from pathlib import Path

from deltap.errors import DeltapError
from deltap.files import digest, file_sha256

MANIFEST = "manifest.json"
"""Written last into a fetched model's directory: source, revision and files."""

_TOKENIZERS = ("tokenizer.json", "tokenizer.model", "vocab.json", "spiece.model")
_KINDS = {".json", ".jinja", ".model", ".txt", ".safetensors"}


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


def model_files(directory: Path) -> list[Path]:
    """Return the files of a model directory that decide what the model is."""
    return sorted(path for path in directory.iterdir() if path.suffix in _KINDS and path.name != MANIFEST)


def revision(directory: Path) -> str:
    """Return a digest of a model directory: the same model gives the same text, wherever it lies.

    Checksums come from the manifest where there is one (raises DeltapError if a file's size is not that of the
    manifest), else they are computed, which takes about as long as reading the files.
    """
    known = {}
    if (directory / MANIFEST).is_file():
        manifest = json.loads((directory / MANIFEST).read_text(encoding="utf-8"))
        known = {file["name"]: file for file in manifest["files"]}
    checksums = {}
    for path in model_files(directory):
        file = known.get(path.name)
        if file and file["size"] != path.stat().st_size:
            raise DeltapError(f"{path}: changed since it was fetched; delete {directory} and run 'snakemake download'")
        checksums[path.name] = file["sha256"] if file else file_sha256(path)
    return digest(checksums)
