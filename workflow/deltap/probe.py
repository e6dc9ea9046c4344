"""A trained probe, and the file that probes are kept in."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load_file, save_file
from scipy.special import expit

from deltap.errors import DeltapError
from deltap.files import whole

Arrays = dict[str, np.ndarray]


@dataclass(frozen=True)
class Probe:
    """A trained probe: affine maps with ReLU between them and the logistic function at the end.

    A logistic regression has one map. The standardisation of the training data is folded into the first.
    """

    weights: tuple[np.ndarray, ...]
    """Float64, shapes (inputs, outputs); the last has one output."""
    biases: tuple[np.ndarray, ...]

    def probability(self, activations: np.ndarray) -> np.ndarray:
        """Return the probability of ``truthful``, shape (samples,), for activations of shape (samples, hidden)."""
        values = np.asarray(activations, dtype=np.float64)
        for index, (weight, bias) in enumerate(zip(self.weights, self.biases, strict=True)):
            values = (np.maximum(values, 0) if index else values) @ weight + bias
        return expit(values[:, 0])

    def arrays(self) -> Arrays:
        """Return the probe as named arrays."""
        maps = enumerate(zip(self.weights, self.biases, strict=True))
        return {f"{name}{index}": array for index, pair in maps for name, array in zip(("w", "b"), pair, strict=True)}

    @classmethod
    def from_arrays(cls, arrays: Arrays) -> "Probe":
        """Return the probe that `arrays` describes."""
        count = len(arrays) // 2
        return cls(tuple(arrays[f"w{i}"] for i in range(count)), tuple(arrays[f"b{i}"] for i in range(count)))


def write_probes(path: Path, probes: dict[tuple[str, str, int], Probe], metadata: dict[str, Any]) -> None:
    """Write probes by (site, position, layer) as a whole safetensors file, with ``metadata`` as JSON."""
    arrays = {
        f"{site}/{position}/{layer}/{name}": np.ascontiguousarray(array)
        for (site, position, layer), probe in probes.items()
        for name, array in probe.arrays().items()
    }
    with whole(path) as temporary:
        save_file(arrays, temporary, {"deltap": json.dumps(metadata, sort_keys=True)})


def read_probes(path: Path) -> dict[tuple[str, str, int], Probe]:
    """Return the probes that `write_probes` wrote; raise DeltapError if the file cannot be read."""
    try:
        arrays = load_file(path)
    except (OSError, SafetensorError) as error:
        raise DeltapError(f"{path}: damaged probes ({error}); delete the file and run snakemake again") from None
    found: dict[tuple[str, str, int], Arrays] = {}
    for key, array in arrays.items():
        site, position, layer, name = key.split("/")
        found.setdefault((site, position, int(layer)), {})[name] = array
    return {key: Probe.from_arrays(named) for key, named in found.items()}


def reference_layer(layers: Sequence[int], aurocs: Sequence[float]) -> int:
    """Return k*: the layer of the best validation AUROC, the lowest of equals."""
    return min(zip(layers, aurocs, strict=True), key=lambda pair: (-pair[1], pair[0]))[0]
