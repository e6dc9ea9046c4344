"""Activation files: one safetensors file per pass, site and position of a shard."""

import json
import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from safetensors import SafetensorError, safe_open

from deltap.errors import DeltapError
from deltap.files import whole

_NAME = "activations"
_DTYPES = {torch.float32: "F32", torch.float16: "F16", torch.bfloat16: "BF16"}
_AT_ONCE = 64_000_000
"""Bytes that are held in memory while a file is put together."""


class Part(Protocol):
    """Activations of some samples, shape (layers, samples, hidden): a tensor, or one that is read a few layers at a
    time."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Of all of it."""

    def __getitem__(self, layers: slice, /) -> torch.Tensor:
        """Return a few layers."""


def write_activations(path: Path, parts: Sequence[Part], metadata: dict[str, Any]) -> None:
    """Write the activations of ``parts``, one after the other, as a whole file, with ``metadata`` as JSON.

    A few layers at a time are held in memory, because a shard may be larger than it. The safetensors library writes
    only what is there as a whole, so the file's frame is written here (source: the "Format" section of
    https://github.com/huggingface/safetensors).
    """
    layers, _, hidden = parts[0].shape
    samples = sum(part.shape[1] for part in parts)
    kind = parts[0][:1].dtype
    per_layer = samples * hidden * kind.itemsize
    frame: dict[str, Any] = {
        "__metadata__": {"deltap": json.dumps(metadata, sort_keys=True)},
        _NAME: {
            "dtype": _DTYPES[kind],
            "shape": [layers, samples, hidden],
            "data_offsets": [0, layers * per_layer],
        },
    }
    header = json.dumps(frame).encode()
    header += b" " * (-len(header) % 8)
    at_once = max(1, _AT_ONCE // max(1, per_layer))
    with whole(path) as temporary, temporary.open("wb") as out:
        out.write(struct.pack("<Q", len(header)) + header)
        for first in range(0, layers, at_once):
            block = torch.cat([part[first : first + at_once] for part in parts], dim=1)
            out.write(block.contiguous().view(torch.uint8).numpy().data)


class ActivationFiles:
    """The activation files of all shards of one pass, site and position, read layer by layer.

    Raises DeltapError if a file cannot be read, or the shards' sizes do not fit together.
    """

    def __init__(self, paths: Sequence[Path]) -> None:
        self._paths = list(paths)
        shapes = [self._shape(path) for path in self._paths]
        for path, shape in zip(self._paths, shapes, strict=True):
            if (shape[0], shape[2]) != (shapes[0][0], shapes[0][2]):
                raise DeltapError(
                    f"{path}: {shape[0]} layers of {shape[2]}, but {self._paths[0]}: {shapes[0][0]} of {shapes[0][2]}; "
                    "the shards are of different models: delete them and run snakemake again"
                )
        with safe_open(self._paths[0], "pt") as file:
            self.dtype: str = file.get_slice(_NAME).get_dtype()
        """As safetensors names it, such as ``BF16``."""
        self.layers, self.hidden = shapes[0][0], shapes[0][2]
        self.first_row = [sum(shape[1] for shape in shapes[:index]) for index in range(len(shapes))]
        """The row of the shards' concatenation at which each shard begins."""
        self.rows = sum(shape[1] for shape in shapes)

    def rows_of(self, shard: np.ndarray, row: np.ndarray) -> np.ndarray:
        """Return the rows in the shards' concatenation of samples that are ``row`` in their ``shard``."""
        return np.array(self.first_row)[shard] + row

    def layer(self, index: int) -> torch.Tensor:
        """Return the activations of one layer, float32, shape (samples of all shards, hidden)."""
        parts = []
        for path in self._paths:
            with safe_open(path, "pt") as file:
                parts.append(file.get_slice(_NAME)[index : index + 1][0].to(torch.float32))
        return torch.cat(parts)

    @staticmethod
    def _shape(path: Path) -> tuple[int, int, int]:
        try:
            with safe_open(path, "pt") as file:
                layers, samples, hidden = file.get_slice(_NAME).get_shape()
                return layers, samples, hidden
        except FileNotFoundError:
            raise DeltapError(f"{path}: no such file") from None
        except (SafetensorError, OSError, ValueError) as error:
            raise DeltapError(
                f"{path}: damaged activations ({error}); delete the file and run snakemake again"
            ) from None


def activation_files(paths: Sequence[Path], name: str, site: str, position: str) -> ActivationFiles:
    """Return, of all the activation files ``paths``, those of one pass, site and position, in the given order."""
    wanted = f"{name}.{site}.{position}.safetensors"
    chosen = [path for path in paths if path.name == wanted]
    if not chosen:
        raise DeltapError(f"no file called {wanted} among the {len(paths)} activation files that were given")
    return ActivationFiles(chosen)
