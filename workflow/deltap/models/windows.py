"""Knockout in a window of layers, restarted from the clean hidden states at the window's start.

Below a window nothing is cut, so what comes out of those layers is what came out of them in the clean pass. It is kept
on the device for the batch, and each window's pass begins there: the model's own forward runs, so that masks, rotary
embedding and whatever else it hands to its layers are its own, but the layers below hand through what was kept. Behind
the layer that is read the pass ends.
"""

from collections.abc import Callable, Iterator, MutableMapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import nn

from deltap.models.knockout import Cut


@dataclass(frozen=True)
class Window:
    """Layers first … last, in which a cut is made, and the layer that is read.

    A window that begins behind the layer that is read changes nothing there.
    """

    first: int
    last: int
    read: int
    head: int | None = None
    """Cut in this head alone; None: in every head."""

    def cut(self, cut: Cut) -> Cut:
        """Return ``cut`` in this window alone."""
        return replace(cut, first_layer=self.first, last_layer=self.last, head=self.head)


class _Enough(Exception):
    """The layer that is read is computed; nothing behind it is wanted."""


class CleanStates:
    """What a model's layers gave in the clean pass of a batch, from which passes can be restarted."""

    def __init__(self, layers: Sequence[nn.Module]) -> None:
        self._layers = layers
        self._outputs: list[Any] = []
        self._shared: list[dict[str, dict]] = []

    def keep(self, run: Callable[[], object], last: int) -> None:
        """Let ``run`` compute the clean pass up to layer ``last``; keep what its layers give."""

        def read(module: nn.Module, arguments: tuple, keywords: dict[str, Any], output: Any) -> None:
            self._outputs.append(output)
            # Some families' layers use the keys and values of lower ones, which they hand on in a mapping.
            self._shared.append({name: dict(value) for name, value in keywords.items() if _is_shared(value)})

        handles = [layer.register_forward_hook(read, with_kwargs=True) for layer in self._layers[:last]]
        try:
            _until(self._layers[last], run)
        finally:
            for handle in handles:
                handle.remove()

    def restart(self, run: Callable[[], object], first: int, last: int) -> None:
        """Let ``run`` compute the layers ``first`` … ``last`` alone, from the clean states that layer ``first`` got."""
        with self._handed_through(first):
            _until(self._layers[last], run)

    @contextmanager
    def _handed_through(self, count: int) -> Iterator[None]:
        """Let the first ``count`` layers give what they gave, without computing it."""
        replaced = self._layers[:count]
        before = [layer.__dict__.get("forward") for layer in replaced]  # accelerate puts one of its own there
        for layer, output, shared in zip(replaced, self._outputs, self._shared, strict=False):
            layer.forward = _giving(output, shared)
        try:
            yield
        finally:
            for layer, forward in zip(replaced, before, strict=True):
                if forward is None:
                    del layer.forward
                else:
                    layer.forward = forward


def _giving(output: Any, shared: dict[str, dict]) -> Callable[..., Any]:
    def forward(*arguments: Any, **keywords: Any) -> Any:
        for name, values in shared.items():
            keywords[name].update(values)
        return output

    return forward


def _is_shared(value: Any) -> bool:
    return isinstance(value, MutableMapping) and not isinstance(value, torch.Tensor)


def _until(layer: nn.Module, run: Callable[[], object]) -> None:
    """Let ``run`` compute a pass that ends when ``layer`` is done."""

    def enough(module: nn.Module, arguments: tuple, output: Any) -> None:
        raise _Enough

    handle = layer.register_forward_hook(enough)
    try:
        run()
    except _Enough:
        pass
    finally:
        handle.remove()
