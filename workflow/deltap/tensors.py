"""Activation files: one safetensors file per pass, site and position of a shard.

Reading needs no torch, which takes seconds to import: the jobs that read are short.
"""

import json
import struct
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np
from safetensors import SafetensorError, safe_open

from deltap import checksum
from deltap.checksum import damaged
from deltap.errors import DeltapError
from deltap.files import whole
from deltap.mixed import refuse_mixed

if TYPE_CHECKING:
    import torch

_NAME = "activations"
_DTYPES = {"torch.float32": "F32", "torch.float16": "F16", "torch.bfloat16": "BF16"}
# NumPy has no bfloat16: its bits are the upper half of a float32's.
_STORED: dict[str, np.dtype] = {"F32": np.dtype("<f4"), "F16": np.dtype("<f2"), "BF16": np.dtype("<u2")}
_NO_LAYERS = "--------"
"""Stands for a layer's checksum while a file is being written."""
_AT_ONCE = 64_000_000
"""Bytes that are held in memory while a file is put together."""


class Part(Protocol):
    """Activations of some samples, shape (layers, samples, hidden): a tensor, or one that is read a few layers at a
    time."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Of all of it."""

    def __getitem__(self, layers: slice, /) -> "torch.Tensor":
        """Return a few layers."""


def write_activations(path: Path, parts: Sequence[Part], metadata: dict[str, Any]) -> None:
    """Write the activations of ``parts``, one after the other, as a whole file, with ``metadata`` as JSON.

    A few layers at a time are held in memory, because a shard may be larger than it. The safetensors library writes
    only what is there as a whole, so the file's frame is written here (source: the "Format" section of
    https://github.com/huggingface/safetensors).
    """
    import torch

    layers, _, hidden = parts[0].shape
    samples = sum(part.shape[1] for part in parts)
    kind = parts[0][:1].dtype
    per_layer = samples * hidden * kind.itemsize
    frame: dict[str, Any] = {
        "__metadata__": {
            "deltap": json.dumps(metadata, sort_keys=True),
            "checksum": checksum.BLANK,
            "layers": _NO_LAYERS * layers,
        },
        _NAME: {
            "dtype": _DTYPES[str(kind)],
            "shape": [layers, samples, hidden],
            "data_offsets": [0, layers * per_layer],
        },
    }
    header = json.dumps(frame).encode()
    header += b" " * (-len(header) % 8)
    at_once = max(1, _AT_ONCE // max(1, per_layer))
    with whole(path) as temporary:
        checksums = []
        with temporary.open("wb") as out:
            out.write(struct.pack("<Q", len(header)) + header)
            for first in range(0, layers, at_once):
                block = torch.cat([part[first : first + at_once] for part in parts], dim=1)
                for layer in block.contiguous().view(torch.uint8).numpy():
                    checksums.append(f"{zlib.crc32(layer.data):08x}")
                    out.write(layer.data)
            out.seek(8 + header.rindex((_NO_LAYERS * layers).encode()))
            out.write("".join(checksums).encode())
        checksum.seal(temporary, whole=False)


class _Stored(NamedTuple):
    """Where the activations lie in a file, and how."""

    layers: int
    samples: int
    hidden: int
    dtype: str
    start: int
    """The byte at which they begin."""
    checksums: tuple[int, ...]
    """CRC-32 of each layer's bytes."""
    provenance: Any
    """What made them."""


class ActivationFiles:
    """The activation files of all shards of one pass, site and position, read layer by layer.

    Raises DeltapError if a file cannot be read, or the shards' sizes do not fit together.
    """

    def __init__(self, paths: Sequence[Path]) -> None:
        self._paths = list(paths)
        self._stored = [_stored(path) for path in self._paths]
        first = self._stored[0]
        for path, stored in zip(self._paths, self._stored, strict=True):
            if (stored.layers, stored.hidden) != (first.layers, first.hidden):
                raise DeltapError(
                    f"{path}: {stored.layers} layers of {stored.hidden}, but {self._paths[0]}: {first.layers} of "
                    f"{first.hidden}; the shards are of different models: delete them and run snakemake again"
                )
            refuse_mixed(self._paths[0], path, first.provenance, stored.provenance)
        self.first_path = self._paths[0]
        """The first shard's file, for messages."""
        self.provenance = first.provenance
        """What made the files, of all shards the same."""
        self.dtype = first.dtype
        """As safetensors names it, such as ``BF16``."""
        self.layers, self.hidden = first.layers, first.hidden
        samples = [stored.samples for stored in self._stored]
        self.first_row = [sum(samples[:index]) for index in range(len(samples))]
        """The row of the shards' concatenation at which each shard begins."""
        self.rows = sum(samples)

    def rows_of(self, shard: np.ndarray, row: np.ndarray) -> np.ndarray:
        """Return the rows in the shards' concatenation of samples that are ``row`` in their ``shard``."""
        return np.array(self.first_row)[shard] + row

    def layer(self, index: int) -> np.ndarray:
        """Return the activations of one layer, float32, shape (samples of all shards, hidden)."""
        parts = []
        for path, stored in zip(self._paths, self._stored, strict=True):
            kind, count = _STORED[stored.dtype], stored.samples * stored.hidden
            values = np.fromfile(path, kind, count, offset=stored.start + index * count * kind.itemsize)
            if zlib.crc32(values.data) != stored.checksums[index]:
                raise damaged(path, f"layer {index} has another checksum")
            if stored.dtype == "BF16":
                bits = values.astype("<u4")
                bits <<= 16
                values = bits.view("<f4")
            values = values.astype(np.float32, copy=False).reshape(stored.samples, stored.hidden)
            if not np.isfinite(values).all():
                raise damaged(path, f"NaN or infinity in layer {index}")
            parts.append(values)
        return np.concatenate(parts)


def _stored(path: Path) -> _Stored:
    try:
        sealed = checksum.check(path, whole=False)
        with safe_open(path, "np") as file:
            part = file.get_slice(_NAME)
            layers, samples, hidden = part.get_shape()
            dtype = part.get_dtype()
            metadata = file.metadata() or {}
        with path.open("rb") as stream:
            (header,) = struct.unpack("<Q", stream.read(8))
        digits = metadata.get("layers", "")
        checksums = tuple(int(digits[start : start + 8], 16) for start in range(0, len(digits), 8))
        if not sealed or len(checksums) != layers or dtype not in _STORED:
            raise ValueError("it has no checksums")
        provenance = json.loads(metadata["deltap"]).get("provenance")
    except FileNotFoundError:
        raise DeltapError(f"{path}: no such file") from None
    except (SafetensorError, OSError, ValueError, KeyError, AttributeError, struct.error) as error:
        raise damaged(path, error) from None
    return _Stored(layers, samples, hidden, dtype, 8 + header, checksums, provenance)


def activation_files(paths: Sequence[Path], name: str, site: str, position: str) -> ActivationFiles:
    """Return, of all the activation files ``paths``, those of one pass, site and position, in the given order."""
    wanted = f"{name}.{site}.{position}.safetensors"
    chosen = [path for path in paths if path.name == wanted]
    if not chosen:
        raise DeltapError(f"no file called {wanted} among the {len(paths)} activation files that were given")
    return ActivationFiles(chosen)
