"""The same sweep in the libraries that people use today, each in the best way its documentation offers.

They are an optional extra (``pip install -e '.[bench]'``); a library that is absent is skipped, with the reason.
"""

import copy
import logging
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import torch

from benchmarks.material import Samples
from benchmarks.sweep import SITES, Padded, Result, stacked

NAMES = {"nnsight": "nnsight", "TransformerLens": "transformer-lens"}
"""Of the libraries, and of their packages."""


Forward = Callable[[torch.Tensor | None, range], dict[tuple[str, int], torch.Tensor]]
"""A pass with this mask, as far as the last of the layers that are read; their states by site and layer."""


class Absent(Exception):
    """A library is not installed; the text says how to get it."""


def peer(name: str, model: Any, tokenizer: Any, samples: Samples) -> Callable[[], Result]:
    """Return the sweep of one of `NAMES` with a copy of ``model``; raise Absent where the library is not installed."""
    try:
        version(NAMES[name])
    except PackageNotFoundError:
        raise Absent(f"{NAMES[name]} is not installed; 'make bench' installs it (the extra 'bench')") from None
    return {"nnsight": nnsight, "TransformerLens": transformer_lens}[name](model, tokenizer, samples)


def nnsight(model: Any, tokenizer: Any, samples: Samples) -> Callable[[], Result]:
    """Return the sweep in nnsight: a traced, headless pass for each layer, which ``tracer.stop`` ends at layer k.

    The batch goes in as one tensor, so that nothing is tokenised or padded again, and the mask is the model's own
    argument: of a pass that ends at layer k, the layers 0 … k are all there are.
    """
    from nnsight import NNsight, save

    traced = NNsight(_copy(model, "sdpa").base_model)
    batch, layers = Padded(samples), len(model.base_model.layers)

    def forward(mask: torch.Tensor | None, wanted: range) -> dict[tuple[str, int], torch.Tensor]:
        found: dict[tuple[str, int], torch.Tensor] = {}
        with traced.trace(batch.ids, attention_mask=mask, use_cache=False) as tracer:
            kept = save({})
            for index in wanted:
                kept["attn", index] = traced.layers[index].self_attn.output[0][batch.rows, batch.at]
                kept["mlp", index] = traced.layers[index].mlp.output[batch.rows, batch.at]
            tracer.stop()
        found |= kept
        return found

    return _sweep(forward, batch, layers)


def transformer_lens(model: Any, tokenizer: Any, samples: Samples) -> Callable[[], Result]:
    """Return the sweep in TransformerLens' bridge: for each layer k a pass with ``stop_at_layer`` k + 1.

    Hooks that keep one position are cheaper than its cache, which asks the model for all attention weights. After the
    last layer it computes the head, of one position.
    """
    from transformer_lens.model_bridge import TransformerBridge

    logging.getLogger("transformer_lens").setLevel(logging.ERROR)
    hf = _copy(model, "eager")
    bridge = TransformerBridge.boot_transformers(
        "demo", hf_model=hf, tokenizer=tokenizer, device=str(hf.device), dtype=hf.dtype
    )
    batch, layers = Padded(samples), len(hf.base_model.layers)

    def forward(mask: torch.Tensor | None, wanted: range) -> dict[tuple[str, int], torch.Tensor]:
        found: dict[tuple[str, int], torch.Tensor] = {}

        def keep(key: tuple[str, int]) -> Callable:
            def hook(states: torch.Tensor, hook: Any) -> None:
                found[key] = batch.read(states)

            return hook

        after = wanted[-1] + 1
        bridge.run_with_hooks(
            batch.ids,
            return_type=None,
            fwd_hooks=[(f"blocks.{index}.{site}.hook_out", keep((site, index))) for index in wanted for site in SITES],
            stop_at_layer=after if after < layers else None,
            attention_mask=mask,
            use_cache=False,
            logits_to_keep=1,
        )
        return found

    return _sweep(forward, batch, layers)


def _sweep(forward: Forward, batch: Padded, layers: int) -> Callable[[], Result]:
    """Return a clean pass and one pass under knockout for each layer, of which that layer is read."""

    @torch.inference_mode()
    def run() -> Result:
        clean, knockout = forward(None, range(layers)), {}
        for layer in range(layers):
            knockout |= forward(batch.cut, range(layer, layer + 1))
        return stacked(clean, knockout)

    return run


def _copy(model: Any, attention: str) -> Any:
    """Return a copy of the model that a library may change as it likes, with an attention of transformers' own."""
    copied = copy.deepcopy(model)
    copied.set_attn_implementation(attention)
    return copied
