"""The store of finished inference chunks, which outlives jobs, runs and Snakemake's own cleaning.

A chunk is one safetensors file: activations under ``<pass>/<site>/<position>``, and the rows of its answers as JSON
in the metadata. Its name is a digest of everything that its content depends on, so that a chunk is either right or not
there, and a job that was killed finds the chunks that it had finished.
"""

import json
import logging
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file

from deltap import checksum, ranks
from deltap.errors import DeltapError
from deltap.files import digest, whole
from deltap.lock import locked

logger = logging.getLogger("deltap")


class Store:
    """Chunks under one directory."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def path(self, key: Any) -> Path:
        """Return where the chunk lies that depends on ``key`` (any JSON value)."""
        name = digest(key)
        return self.root / name[:2] / f"{name}.safetensors"

    def lock(self, series: str, key: Any) -> AbstractContextManager[None]:
        """Return a context in which nobody else writes the chunks of ``series`` that depend on ``key``.

        Entering it waits a minute for another writer to end, then raises DeltapError that names it. Of several
        ranks the first one writes.
        """
        if not ranks.here().first:
            return nullcontext()
        return locked(self.root / "locks" / f"{series.replace('/', '.')}.{digest(key)}.lock", series)

    def write(self, path: Path, tensors: dict[str, torch.Tensor], rows: list[dict[str, Any]]) -> None:
        """Write a chunk as a whole file."""
        with whole(path) as temporary:
            save_file(
                {name: tensor.contiguous() for name, tensor in tensors.items()},
                temporary,
                # One key, for the library writes several in any order.
                {"deltap": json.dumps({"rows": rows, "checksum": checksum.BLANK}, sort_keys=True)},
            )
            checksum.seal(temporary)

    def has(self, path: Path) -> bool:
        """Tell whether a chunk is there; one that is damaged counts as missing, and is said to be."""
        if not path.exists():
            return False
        try:
            with _open(path):
                return True
        except DeltapError as error:
            logger.warning("%s", error)
            logger.warning("chunk %s is computed again", path.stem)
            return False


def read_rows(path: Path) -> list[dict[str, Any]]:
    """Return the rows of a chunk's answers."""
    with _open(path) as file:
        return json.loads(file.metadata()["deltap"])["rows"]


@dataclass(frozen=True)
class StoredTensor:
    """One tensor of a chunk, read a few rows at a time."""

    path: Path
    name: str

    @property
    def shape(self) -> tuple[int, ...]:
        """Of the whole tensor."""
        with _open(self.path) as file:
            return tuple(file.get_slice(self.name).get_shape())

    def __getitem__(self, rows: slice) -> torch.Tensor:
        """Return rows of the first dimension."""
        with _open(self.path) as file:
            return file.get_slice(self.name)[rows]


def _open(path: Path) -> AbstractContextManager[Any]:
    return checksum.opened(path, "pt", "; start the job again")
