"""Engine ``single``: one process, one device."""

from pathlib import Path
from typing import Any

import torch

from deltap.models.engines.weights import pretrained


def load(directory: Path, config: Any, dtype: torch.dtype, device: torch.device, trusted: bool) -> Any:
    """Return the model in ``directory`` on ``device``."""
    return pretrained(directory, config, trusted, dtype=dtype, device_map={"": device})
