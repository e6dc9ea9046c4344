"""Manifests: what a downloaded folder holds, and of which commit it is. Importing this is cheap."""

import json
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

from deltap.errors import DeltapError
from deltap.files import digest, file_sha256, write_json

MANIFEST = "manifest.json"
"""The manifest's name in its folder; it is written last, so that where it is, everything else is too."""

FETCH = "run 'snakemake download' with the run's --configfile where there is a network"
"""What one does about a download that is missing."""

FETCH_AGAIN = (
    "fetch it again, of the same commit, with 'snakemake download --forcerun fetch_model fetch_dataset' and the run's "
    "--configfile where there is a network"
)
"""What one does about a download that is damaged, though its manifest is there."""


class File(NamedTuple):
    """A file of a downloaded folder."""

    name: str
    size: int
    """Bytes."""
    sha256: str


class Manifest(NamedTuple):
    """What was asked for, what it was at that time, and the files."""

    source: dict[str, Any]
    """Repository and revision as configured, and so on."""
    revision: str
    """The commit, or the checksum of the file that was converted."""
    files: tuple[File, ...]

    def file(self, name: str) -> File | None:
        """Return what is known about a file, None for nothing."""
        return next((file for file in self.files if file.name == name), None)


def described(paths: Iterable[Path]) -> tuple[File, ...]:
    """Return the description of files, ordered by name; their contents are read."""
    return tuple(File(path.name, path.stat().st_size, file_sha256(path)) for path in sorted(paths))


def write_manifest(directory: Path, source: dict[str, Any], revision: str, files: Iterable[File]) -> None:
    """Write the manifest of ``directory``."""
    value = {"source": source, "revision": revision, "files": [file._asdict() for file in files]}
    write_json(directory / MANIFEST, {**value, "digest": digest(value)})


def read_manifest(directory: Path, source: dict[str, Any] | None = None) -> Manifest | None:
    """Return the manifest in ``directory``, None where there is none, or one of another ``source`` than the given.

    Raises DeltapError where it cannot be read.
    """
    path = directory / MANIFEST
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
        written = value.pop("digest", None)
        if value.keys() != {"source", "revision", "files"} or written not in (None, digest(value)):
            raise ValueError("its digest is another one")
        found = Manifest(value["source"], value["revision"], tuple(File(**file) for file in value["files"]))
        return found if source in (None, found.source) else None
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise DeltapError(f"{path}: not a manifest ({error!r}); delete it and {FETCH}") from None


def check_files(manifest: Manifest, directory: Path) -> None:
    """Raise DeltapError where a file of the manifest is missing, or has another size."""
    for file in manifest.files:
        path = directory / file.name
        if not path.is_file() or path.stat().st_size != file.size:
            what = "changed since it was fetched" if path.is_file() else "missing, though the manifest names it"
            raise DeltapError(f"{path}: {what}; {FETCH_AGAIN}")


def verify(manifest: Manifest, directory: Path) -> None:
    """Raise DeltapError where a file of the manifest is not the one that was fetched, which means reading all of it."""
    check_files(manifest, directory)

    def other(file: File) -> bool:
        return file_sha256(directory / file.name) != file.sha256

    # hashlib leaves the other cores to others; a large model is many files.
    with ThreadPoolExecutor(4) as pool:
        for file, wrong in zip(manifest.files, pool.map(other, manifest.files), strict=True):
            if wrong:
                raise DeltapError(f"{directory / file.name}: damaged since it was fetched; delete it and {FETCH_AGAIN}")


def is_whole(manifest: Manifest, directory: Path) -> bool:
    """Tell whether every file of the manifest is there, with its size."""
    try:
        check_files(manifest, directory)
    except DeltapError:
        return False
    return True
