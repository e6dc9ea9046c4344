"""Data sets of the Hugging Face Hub."""

import logging
from collections.abc import Iterator

from deltap.errors import DeltapError
from deltap.questions.rows import Row
from deltap.settings import DatasetSource

logger = logging.getLogger(__name__)


def hub_rows(entry: DatasetSource) -> Iterator[Row]:
    """Yield the rows of ``entry.hub`` (a repository's name, or a folder of its files), downloaded and cached.

    Raises DeltapError that names the repository where it cannot be loaded.
    """
    import datasets  # takes seconds, and no data set from a file needs it

    if entry.revision is None:
        logger.warning("%s: no revision is given, so another day may bring other rows", entry.hub)
    try:
        loaded = datasets.load_dataset(entry.hub, entry.subset, split=entry.hub_split, revision=entry.revision)
    except Exception as error:  # the library's errors have no common class
        raise DeltapError(
            f"data set {entry.hub} (subset {entry.subset}, split {entry.hub_split}) cannot be loaded: {error}\n"
            "The first time it needs the network; a gated one needs `hf auth login` and its owner's consent; or "
            "download its file and give that as path."
        ) from error
    for number, value in enumerate(loaded, start=1):
        yield Row(f"{entry.hub}, row {number}", value)
