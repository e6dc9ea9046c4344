"""Engine ``device_map``: accelerate's dispatch of whole layers to several GPUs and, for the rest, to host memory.

For models that no tensor-parallel plan divides. The GPUs work one after the other; layers in host memory travel to the
first GPU for every batch. What does not fit there either is read from disk for every batch, which is told in the log.
"""

import logging
import tempfile
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from deltap.models.engines.weights import pretrained

logger = logging.getLogger("deltap")


def load(
    directory: Path,
    config: Any,
    dtype: torch.dtype,
    device: torch.device,
    max_memory: Mapping[str, str] | None,
    trusted: bool,
) -> tuple[Any, torch.device]:
    """Return the model in ``directory`` and the device that its inputs go to."""
    limits = {int(name) if name.isdigit() else name: limit for name, limit in (max_memory or {}).items()}
    if device.type == "cpu" and "cpu" not in limits:
        placement: dict[str, Any] = {"device_map": {"": "cpu"}}
    else:
        placement = {"device_map": "auto", "max_memory": limits or None}
    folder = tempfile.TemporaryDirectory(prefix="deltap-offload-")
    model = pretrained(directory, config, trusted, dtype=dtype, offload_folder=folder.name, **placement)
    model.offload_folder = folder  # removed with the model
    where = list(getattr(model, "hf_device_map", {"": "cpu"}).values())
    places = Counter(map(str, where))
    logger.info("modules by device: %s", ", ".join(f"{place} {number}" for place, number in sorted(places.items())))
    if "disk" in places:
        logger.warning(
            "%d modules fit neither GPUs nor host memory and are read from disk for every batch; give more gpus, "
            "memory_mb or max_memory",
            places["disk"],
        )
    computing = [place for place in where if place not in ("cpu", "disk")]
    return model, torch.device(computing[0]) if computing else torch.device("cpu")
