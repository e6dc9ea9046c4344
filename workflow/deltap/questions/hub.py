"""Data sets of the Hugging Face Hub: downloaded once, as one Parquet file with a manifest, then read offline."""

import logging
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from deltap.errors import DeltapError
from deltap.files import file_sha256, whole
from deltap.hub import Repository, accessible, explained
from deltap.manifest import FETCH, FETCH_AGAIN, check_files, described, is_whole, read_manifest, write_manifest
from deltap.settings import DatasetDownload, DatasetSource

logger = logging.getLogger("deltap")

DATA = "data.parquet"
"""The split's rows, in their order and with the columns that the repository gives them."""


def fetch_dataset(download: DatasetDownload, directory: Path, others: Iterable[Repository] = ()) -> None:
    """Download one split of a data set into ``directory`` as `DATA`, and write its manifest.

    The commit is that of the manifest that is there, else the one that the configured revision is now. A whole
    download is left alone. Nothing is downloaded unless ``others``, which the run needs too, may be had as well.
    Raises DeltapError where the hub does not give it.
    """
    source = download.model_dump(exclude_none=True)
    manifest = read_manifest(directory, source)
    if manifest and is_whole(manifest, directory):
        logger.info("%s: already in %s, commit %s", download.hub, directory, manifest.revision)
        return
    repository = Repository("dataset", download.hub, manifest.revision if manifest else download.revision)
    commit = accessible([repository, *others])[repository].commit
    directory.mkdir(parents=True, exist_ok=True)
    # The library's own cache would take the same space again, and would answer where the hub does not.
    with tempfile.TemporaryDirectory(dir=directory) as cache, whole(directory / DATA) as temporary:
        rows = _load(download, repository, commit, cache)
        rows.to_parquet(temporary)
    write_manifest(directory, source, commit, described([directory / DATA]))
    logger.info("%s: %d rows of commit %s", download.hub, len(rows), commit)


def _load(download: DatasetDownload, repository: Repository, commit: str, cache: str) -> Any:
    """Return the split's rows (a `datasets.Dataset`), which lie in ``cache``."""
    import datasets  # takes seconds, and no data set from a file needs it
    from huggingface_hub.errors import HTTPError

    if Path(download.hub).exists():
        raise DeltapError(
            f"data set {download.hub}: a folder of this name lies in the working directory, and the library 'datasets' "
            "would read that instead of the hub; move it, or give its file as 'path:'"
        )
    with explained(repository):
        try:
            return datasets.load_dataset(
                download.hub, download.subset, split=download.hub_split, revision=commit, cache_dir=cache
            )
        except (ConnectionError, TimeoutError, HTTPError):
            raise
        except Exception as error:  # the library's errors have no common class
            raise DeltapError(
                f"data set {download.hub} (subset {download.subset}, split {download.hub_split}, commit {commit}) "
                f"cannot be loaded: {error}\nCorrect subset and hub_split, or give its file as 'path:'"
            ) from error


def downloaded(entry: DatasetSource, manifest_file: Path | None) -> tuple[DatasetSource, dict[str, str]]:
    """Return a hub data set's entry as that of its downloaded file, and where the file came from, for the provenance.

    Raises DeltapError where it is not downloaded, or not whole.
    """
    directory = manifest_file.parent if manifest_file else None
    manifest = read_manifest(directory) if directory else None
    if directory is None or manifest is None:
        raise DeltapError(f"data set {entry.hub}: not downloaded yet; {FETCH}, or give its file as 'path:'")
    check_files(manifest, directory)
    file = manifest.file(DATA)
    if file is None or manifest.source.get("hub") != entry.hub:
        raise DeltapError(f"{manifest_file}: not a manifest of the data set {entry.hub}; delete it and {FETCH}")
    if file_sha256(directory / DATA) != file.sha256:
        raise DeltapError(f"{directory / DATA}: not the file that was downloaded; delete it and {FETCH_AGAIN}")
    local = {"path": str(directory / DATA), "hub": None, "revision": None, "subset": None, "hub_split": None}
    facts = {"repository": manifest.source["hub"], "commit": manifest.revision, "file_sha256": file.sha256}
    return entry.model_copy(update=local), facts
