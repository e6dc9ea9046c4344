"""Keys and values of a beginning that several passes have in common.

transformers' caches grow with every pass. Passes that begin alike, such as the clean one and the one under knockout,
need a beginning that stays as it is and takes no memory for what follows. A prefix that all samples share is not copied
for each of them until more keys and values are put behind it.
"""

import copy
import math
from typing import Any

import torch
from transformers import Cache
from transformers.cache_utils import DynamicSlidingWindowLayer


class Beginning(Cache):
    """A cache whose keys and values stand before the tokens of every pass that uses it, and which no pass changes."""

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, layer_idx: int, *args: Any, **kwargs: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return a layer's keys and values with the new ones behind them; keep none of the new ones."""
        layer: Any = copy.copy(self.layers[layer_idx])
        return layer.update(key_states, value_states, *args, **kwargs)


def growing(cache: Cache, batch: int) -> Cache:
    """Return a cache of ``batch`` rows that begins with ``cache`` and grows, while ``cache`` stays as it is.

    The rows of a cache of one row are views, not copies.
    """
    layers: list[Any] = [copy.copy(layer) for layer in cache.layers]
    for layer in layers:
        if layer.keys is not None:
            layer.keys = layer.keys.expand(batch, -1, -1, -1)
            layer.values = layer.values.expand(batch, -1, -1, -1)
    return Cache(layers=layers)


def beginning(cache: Cache, batch: int) -> Beginning:
    """Return the beginning of a batch of ``batch`` rows that ``cache`` holds, as views."""
    return Beginning(layers=growing(cache, batch).layers)


def narrowest_window(cache: Cache) -> float:
    """Return how many positions the layer with the narrowest sliding window sees; infinite where none slides."""
    windows = (layer.sliding_window for layer in cache.layers if isinstance(layer, DynamicSlidingWindowLayer))
    return min(windows, default=math.inf)
