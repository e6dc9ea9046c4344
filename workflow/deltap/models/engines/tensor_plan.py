"""Engine ``accelerate``: tensor parallelism by the plan that transformers has for a family.

Each rank reads only its part of each weight from the files, whatever their number and dtype.
"""

from pathlib import Path
from typing import Any

import torch
from transformers.distributed import DistributedConfig

from deltap.models.engines.weights import pretrained


def load(directory: Path, config: Any, dtype: torch.dtype, ranks: int, trusted: bool) -> Any:
    """Return this rank's part of the model in ``directory``; the process group exists already."""
    return pretrained(
        directory, config, trusted, dtype=dtype, distributed_config=DistributedConfig(tp_plan="auto", tp_size=ranks)
    )
