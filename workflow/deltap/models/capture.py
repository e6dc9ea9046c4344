"""Reading activations at chosen positions during a forward pass."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn

from deltap.errors import DeltapError
from deltap.models.layers import hidden_states


@contextmanager
def capture(
    modules: dict[tuple[str, int], nn.Module], positions: torch.Tensor
) -> Iterator[dict[tuple[str, int], torch.Tensor]]:
    """Collect the modules' outputs at ``positions`` in the forward pass inside the block.

    ``modules`` are keyed by (site, layer), as `site_modules` returns them; ``positions`` has the shape
    (batch, positions) and counts in the tokens of this pass. The yielded mapping holds one tensor of shape
    (batch, positions, hidden) for each key once the pass is done. Hooks are removed whatever happens::

        with capture(site_modules(model, ("attn",)), positions) as activations:
            model(input_ids)
        activations["attn", 0]

    Raises DeltapError during the pass if a module runs twice in it (looped layers have no one activation), or gives
    something else than hidden states of shape (batch, tokens, hidden).
    """
    rows = torch.arange(len(positions), device=positions.device)[:, None]
    found: dict[tuple[str, int], torch.Tensor] = {}

    def hook(key: tuple[str, int]) -> Any:
        def read(module: nn.Module, arguments: tuple, output: Any) -> None:
            states = hidden_states(output)
            site, layer = key
            if key in found:
                raise DeltapError(
                    f"{type(module).__name__}: layers are looped (layer {layer} runs several times in one pass); two "
                    "passes would not be enough, so this model cannot be measured by knockout"
                )
            if states.ndim != 3 or len(states) != len(positions):
                raise DeltapError(
                    f"{type(module).__name__}: the output has the shape {tuple(states.shape)} and not (batch, tokens, "
                    f"hidden), so site '{site}' of layer {layer} cannot be read; leave it out of 'inference: sites'"
                )
            # On several devices each layer is read where it is.
            found[key] = states[rows.to(states.device), positions.to(states.device)]

        return read

    handles = [module.register_forward_hook(hook(key)) for key, module in modules.items()]
    try:
        yield found
    finally:
        for handle in handles:
            handle.remove()
