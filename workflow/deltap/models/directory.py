"""Model directories on disk: what they must hold, and which model it is."""

import json
from pathlib import Path

from deltap.errors import DeltapError
from deltap.files import digest, file_sha256
from deltap.manifest import FETCH, MANIFEST, check_files, read_manifest

_TOKENIZERS = ("tokenizer.json", "tokenizer.model", "vocab.json", "spiece.model")
_KINDS = {".json", ".jinja", ".model", ".py", ".txt", ".safetensors"}


def check_model_directory(directory: Path) -> None:
    """Raise DeltapError unless ``directory`` holds a configuration, safetensors weights and a tokenizer."""
    if not directory.is_dir():
        raise DeltapError(f"{directory}: no such model directory; if it is one that is fetched, {FETCH}")
    if not (directory / "config.json").is_file():
        gguf = sorted(directory.glob("*.gguf"))
        remedy = f"; to use the GGUF file in it, give the file: 'path: {gguf[0]}'" if gguf else ""
        raise DeltapError(f"{directory}: no config.json, so this is not a transformers model directory{remedy}")
    lost = sorted(path.name for path in directory.iterdir() if path.is_symlink() and not path.exists())
    if lost:
        raise DeltapError(
            f"{directory}: {', '.join(lost)} lead to files that are not there any more; fetch the model again"
        )
    if not any(path.is_file() for path in directory.glob("*.safetensors")):
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
            missing = sorted(shard for shard in shards if not (directory / shard).is_file())
        except (ValueError, KeyError, AttributeError, TypeError, RecursionError) as error:
            raise DeltapError(f"{index}: not a readable weight index ({error}); fetch the model again") from None
        if missing:
            raise DeltapError(f"{directory}: weights are incomplete, missing {', '.join(missing)}")


def model_files(directory: Path) -> list[Path]:
    """Return the files of a model directory that decide what the model is."""
    return sorted(
        path for path in directory.iterdir() if path.suffix in _KINDS and path.name != MANIFEST and path.is_file()
    )


def revision(directory: Path) -> str:
    """Return a digest of a model directory: the same model gives the same text, wherever it lies.

    Checksums come from the manifest where there is one (raises DeltapError if a file is missing, or has not the size
    that the manifest says), else they are computed, which takes about as long as reading the files.
    """
    manifest = read_manifest(directory)
    if manifest:
        check_files(manifest, directory)
        known = {file.name: file.sha256 for file in manifest.files}
    else:
        known = {}
    return digest({path.name: known.get(path.name) or file_sha256(path) for path in model_files(directory)})


GGUF = b"GGUF"
"""What every GGUF file begins with."""


def check_gguf(path: Path) -> None:
    """Raise DeltapError unless ``path`` is a GGUF file."""
    if not path.is_file():
        near = sorted(other.name for other in path.parent.glob("*.gguf"))
        raise DeltapError(f"{path}: no such file; GGUF files in its folder: {', '.join(near) or 'none'}")
    with path.open("rb") as stream:
        if stream.read(len(GGUF)) != GGUF:
            raise DeltapError(f"{path}: not a GGUF file, or not a whole one")
