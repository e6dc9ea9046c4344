"""Engine ``deepspeed``: tensor parallelism by DeepSpeed's AutoTP, for inference, without its own kernels.

The whole model is first mapped from its files, in their dtype and without reading them, so that ranks on one node share
the pages; then each rank copies its part. Only the embedding stays whole on every rank. What DeepSpeed does besides is
undone: buffers, such as the frequencies of rotary embeddings, keep the precision that transformers gives them.
"""

import contextlib
import io
import logging
from pathlib import Path
from typing import Any

import torch

from deltap.errors import DeltapError
from deltap.models.engines.weights import pretrained
from deltap.models.memory import is_out_of_memory


def load(directory: Path, config: Any, dtype: torch.dtype, device: torch.device, ranks: int, trusted: bool) -> Any:
    """Return this rank's part of the model in ``directory`` on ``device``; the process group exists already."""
    deepspeed = _deepspeed()
    model = pretrained(directory, config, trusted, dtype="auto")
    buffers = {name: buffer.clone() for name, buffer in model.named_buffers()}
    try:
        with contextlib.redirect_stdout(io.StringIO()):  # it prints what it found
            deepspeed.init_inference(
                model,
                tensor_parallel={"tp_size": ranks},
                dtype=model.dtype,  # another one would be made of all weights, before they are split
                replace_with_kernel_inject=False,
                keep_module_on_host=True,
            )
    except (ValueError, RuntimeError, AssertionError, AttributeError, KeyError) as error:
        if is_out_of_memory(error):
            raise
        raise DeltapError(
            f"{directory}: DeepSpeed cannot split {type(model).__name__}: {error}; try engine: accelerate or device_map"
        ) from error
    for parameter in model.parameters():
        parameter.data = parameter.data.to(device, dtype)
    for name, buffer in buffers.items():
        owner, _, attribute = name.rpartition(".")
        setattr(model.get_submodule(owner), attribute, buffer.to(device))
    model.config.dtype = dtype
    return model


def _deepspeed() -> Any:
    try:
        import deepspeed
    except ImportError as error:
        raise DeltapError(
            f"engine: deepspeed needs the package deepspeed ({error}); install deltap with its extra: "
            "pip install '.[cluster]'"
        ) from None
    logging.getLogger("DeepSpeed").setLevel(logging.ERROR)
    # Its sums through shared memory need a compiler at run time, one node, and a variable that only its own launcher
    # sets.
    deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False
    return deepspeed
