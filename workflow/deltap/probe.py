"""A trained probe, and the file that probes are kept in."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save_file
from scipy.special import expit

from deltap import checksum
from deltap.checksum import damaged
from deltap.files import whole
from deltap.mixed import refuse_mixed, refuse_other_source
from deltap.provenance import made

Arrays = dict[str, np.ndarray]


@dataclass(frozen=True)
class Probe:
    """A trained probe: affine maps with ReLU between them and the logistic function at the end.

    A logistic regression has one map. The standardisation of the training data is folded into the first.
    """

    weights: tuple[np.ndarray, ...]
    """Float64, shapes (inputs, outputs); the last has one output."""
    biases: tuple[np.ndarray, ...]

    def logit(self, activations: np.ndarray) -> np.ndarray:
        """Return the logit of ``truthful``, float64, shape (samples,), for activations of shape (samples, hidden)."""
        values = np.asarray(activations, dtype=np.float64)
        for index, (weight, bias) in enumerate(zip(self.weights, self.biases, strict=True)):
            values = (np.maximum(values, 0) if index else values) @ weight + bias
        return values[:, 0]

    def probability(self, activations: np.ndarray) -> np.ndarray:
        """Return the probability of ``truthful``, shape (samples,), for activations of shape (samples, hidden)."""
        return expit(self.logit(activations))

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
        # One key, for the library writes several in any order.
        save_file(arrays, temporary, {"deltap": json.dumps({**metadata, "checksum": checksum.BLANK}, sort_keys=True)})
        checksum.seal(temporary)


def read_probes(path: Path) -> dict[tuple[str, str, int], Probe]:
    """Return the probes that `write_probes` wrote; raise DeltapError if the file cannot be read."""
    found: dict[tuple[str, str, int], Arrays] = {}
    with checksum.opened(path, "np") as file:
        for key in file.keys():  # noqa: SIM118 - it is no mapping
            site, position, layer, name = key.split("/")
            found.setdefault((site, position, int(layer)), {})[name] = file.get_tensor(key)
        probes = {key: Probe.from_arrays(named) for key, named in found.items()}
    for (site, position, layer), probe in probes.items():
        if not all(np.isfinite(array).all() for array in probe.arrays().values()):
            raise damaged(path, f"NaN or infinity in the probe of {site}, {position}, layer {layer}")
    return probes


def made_probes(path: Path) -> Any:
    """Return what made a file of probes; raise DeltapError if it cannot be read."""
    with checksum.opened(path, "np") as file:
        return json.loads(file.metadata()["deltap"]).get("provenance")


def check_made_together(labels: Path, scores: Path, probes: Path) -> None:
    """Raise DeltapError where probes and scores were not trained together, or not on the labels as they are now."""
    made_by = made_probes(probes)
    refuse_mixed(scores, probes, made(scores), made_by)
    refuse_other_source(probes, made_by, labels, made(labels))


def reference_layer(layers: Sequence[int], aurocs: Sequence[float]) -> int:
    """Return k*: the layer of the best validation AUROC, the lowest of equals."""
    return min(zip(layers, aurocs, strict=True), key=lambda pair: (-pair[1], pair[0]))[0]
