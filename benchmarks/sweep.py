"""The knockout sweep, as this project does it and as others do: an activation of every layer, clean and cut in 0 … k.

Every contestant gets the same samples in one batch and returns the same: for ``clean`` and ``knockout`` and each site
a tensor of shape (layers, samples, hidden), read at one position of each sample. The sites are the self-attention's and
the MLP's output. All but ours pad whole sequences at the right, where no token that is read can see the padding, and
take one pass for each layer k, whose activation they keep, after one clean pass.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import torch
from torch import nn

from benchmarks.material import Samples
from deltap.models.engine import Engine

Result = dict[str, torch.Tensor]
SITES = ("attn", "mlp")


class Padded:
    """Samples as one padded batch, with the masks that the passes need."""

    def __init__(self, samples: Samples) -> None:
        shape = len(samples), max(map(len, samples.sequences))
        self.ids = torch.zeros(shape, dtype=torch.long)
        inside = torch.zeros(shape, dtype=torch.bool)
        for row, (sequence, cut) in enumerate(zip(samples.sequences, samples.cuts, strict=True)):
            self.ids[row, : len(sequence)] = torch.tensor(sequence)
            inside[row, cut] = True
        self.causal = torch.ones(shape[1], shape[1], dtype=torch.bool).tril().expand(shape[0], 1, -1, -1)
        """Boolean, shape (samples, 1, query, key): what a query may attend to."""
        self.cut = self.causal & (~inside[:, None, None, :] | inside[:, None, :, None])
        """The same without the edges from exact question tokens to later positions outside of them."""
        self.rows = torch.arange(shape[0])
        self.at = torch.tensor([position for (position,) in samples.positions])

    def read(self, states: torch.Tensor) -> torch.Tensor:
        """Return the states (samples, positions, hidden) at the position that is read."""
        return states[self.rows, self.at]


def stacked(clean: dict[tuple[str, int], torch.Tensor], knockout: dict[tuple[str, int], torch.Tensor]) -> Result:
    """Return a contestant's result from its activations by site and layer."""
    layers = len(clean) // len(SITES)
    return {
        f"{name}/{site}": torch.stack([states[site, layer] for layer in range(layers)])
        for name, states in (("clean", clean), ("knockout", knockout))
        for site in SITES
    }


def ours(engine: Engine, samples: Samples, prefix: list[int]) -> Callable[[], Result]:
    """Return this project's sweep; what all samples begin with (``prefix``) is computed once in each run of it."""
    engine.batch_tokens = sum(map(len, samples.sequences)) * 2  # one batch, as the others have

    def run() -> Result:
        engine.share_prefix(prefix)
        found = engine.clean_and_knockout(samples.sequences, samples.positions, SITES, samples.cuts)
        return {
            f"{name}/{site}": states[site][:, :, 0]
            for name, states in zip(("clean", "knockout"), found, strict=True)
            for site in SITES
        }

    return run


def work(samples: Samples, prefix: list[int], layers: int) -> dict[bool | None, int]:
    """Return how many tokens go through how many layers: in ours (None), and in one pass per layer by its ``stop``.

    In ours what comes before the samples' first exact question token is computed once.
    """
    number, longest = len(samples), max(map(len, samples.sequences))
    common = min(position for row in (*samples.cuts, *samples.positions) for position in row)
    two = len(prefix) + number * (common - len(prefix) + 2 * (longest - common))
    whole = number * longest
    return {None: two * layers, False: whole * layers * (layers + 1), True: whole * layers * (layers + 3) // 2}


def one_pass_per_layer(model: Any, samples: Samples, stop: bool) -> Callable[[], Result]:
    """Return the sweep of plain hooks: for each k a headless pass, which with ``stop`` ends at layer k.

    A pass to the end cuts in layers 0 … k only, by hooks that exchange the layers' masks, and leaves the others to
    SDPA's own causal path. A pass that ends at k is given the mask for all of its layers.
    """
    batch = Padded(samples)
    backbone = model.base_model
    layers = list(backbone.layers)

    def forward(last: int | None) -> dict[tuple[str, int], torch.Tensor]:
        """Pass once: clean, reading every layer, or cut in layers 0 … ``last``, reading layer ``last``."""
        found: dict[tuple[str, int], torch.Tensor] = {}
        with _hooks() as hooks:
            for index in range(len(layers)) if last is None else [last]:
                for site, module in (("attn", layers[index].self_attn), ("mlp", layers[index].mlp)):
                    ends = stop and last is not None and site == SITES[-1]
                    hooks.append(module.register_forward_hook(_reading(batch, found, (site, index), ends)))
            mask = batch.cut if stop and last is not None else None
            if last is not None and not stop:
                for layer in layers[: last + 1]:
                    hooks.append(layer.self_attn.register_forward_pre_hook(_cutting(batch), with_kwargs=True))
            with suppress(_Enough):
                backbone(batch.ids, attention_mask=mask, use_cache=False)
        return found

    @torch.inference_mode()
    def run() -> Result:
        with _attention(model, "sdpa"):
            clean, knockout = forward(None), {}
            for layer in range(len(layers)):
                knockout |= forward(layer)
            return stacked(clean, knockout)

    return run


def bare(model: Any, samples: Samples) -> Callable[[], object]:
    """Return one headless pass over the same padded batch that reads nothing and cuts nothing."""
    batch = Padded(samples)

    @torch.inference_mode()
    def run() -> object:
        return model.base_model(batch.ids, use_cache=False)

    return run


class _Enough(Exception):
    """The pass has come to the layer that is wanted."""


def _reading(batch: Padded, found: dict, key: tuple[str, int], ends: bool) -> Callable:
    def hook(module: nn.Module, arguments: tuple, output: Any) -> None:
        found[key] = batch.read(output[0] if isinstance(output, tuple) else output)
        if ends:
            raise _Enough

    return hook


def _cutting(batch: Padded) -> Callable:
    def hook(module: nn.Module, arguments: tuple, keywords: dict) -> tuple[tuple, dict]:
        return arguments, {**keywords, "attention_mask": batch.cut}

    return hook


@contextmanager
def _hooks() -> Iterator[list]:
    hooks: list = []
    try:
        yield hooks
    finally:
        for hook in hooks:
            hook.remove()


@contextmanager
def _attention(model: Any, name: str) -> Iterator[None]:
    used = model.config._attn_implementation
    model.set_attn_implementation(name)
    try:
        yield
    finally:
        model.set_attn_implementation(used)
