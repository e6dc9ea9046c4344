"""Which of torch's attention kernels runs: a mask may force one that is several times slower, without a word."""

from collections.abc import Callable
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

# The operators that scaled_dot_product_attention calls, and what people call them; plain algebra has none of its own.
_KERNELS = {
    "_scaled_dot_product_flash_attention": "flash attention",
    "_scaled_dot_product_flash_attention_for_cpu": "flash attention",
    "_scaled_dot_product_efficient_attention": "memory-efficient attention",
    "_scaled_dot_product_cudnn_attention": "cuDNN attention",
    "_scaled_dot_product_fused_attention_overrideable": "the device's own attention",
}
OWN = "algebra of this project's own, for capped logits"
PLAIN = "plain algebra"
"""Logits, softmax and weighted sum one after the other, each with all queries times keys in memory."""


class _Watching(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()
        self.kernel = PLAIN

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func.name().removeprefix("aten::").split(".")[0]
        self.kernel = _KERNELS.get(name, self.kernel)
        if name == "scaled_dot_product_attention":  # in inference mode it comes whole
            with self:
                return func.decompose(*args, **(kwargs or {}))
        return func(*args, **(kwargs or {}))


def watched(attend: Callable[[], torch.Tensor]) -> tuple[torch.Tensor, str]:
    """Return what ``attend`` returns, and the kernel by which it attended."""
    with _Watching() as watching:
        result = attend()
    return result, watching.kernel
