"""Finding a model's decoder layers and the modules whose output is read, for any family."""

import torch
from torch import nn

from deltap.errors import DeltapError

# Words in module or class names that mark a layer without attention logits to cut.
_NO_LOGITS = (
    "mamba",
    "ssm",
    "linear_attn",
    "linearattention",
    "delta",
    "rwkv",
    "recurrent",
    "lightning",
    "lstm",
    "shortconv",
)


def decoder_layers(model: nn.Module) -> list[nn.Module]:
    """Return the decoder layers of a causal language model, first to last.

    They are the one module list that has as many elements as the configuration has hidden layers, each with a
    self-attention; of a model that also takes images, those of its language model. Raises DeltapError where there is
    none.
    """
    config = model.config.get_text_config()  # type: ignore[union-attr, operator]
    for module in model.get_decoder().modules():  # type: ignore[union-attr, operator]
        if isinstance(module, nn.ModuleList) and len(module) == config.num_hidden_layers:
            layers = list(module)
            if all(_child(layer, "attn", "attention") is not None for layer in layers):
                return layers
    raise DeltapError(
        f"{type(model).__name__}: found no list of {config.num_hidden_layers} decoder layers with self-attention; "
        "this architecture is not supported"
    )


def site_modules(model: nn.Module, sites: tuple[str, ...]) -> dict[tuple[str, int], nn.Module]:
    """Return the module whose output is the activation, for each (site, layer).

    ``attn``: the self-attention (its output is after ``o_proj``); ``mlp``: the feed-forward block; ``resid``: the layer
    itself, whose output is the residual stream after it. Raises DeltapError where a layer lacks one.
    """
    modules: dict[tuple[str, int], nn.Module] = {}
    for index, layer in enumerate(decoder_layers(model)):
        for site in sites:
            module = {
                "attn": lambda layer=layer: _child(layer, "attn", "attention"),
                "mlp": lambda layer=layer: _child(layer, "mlp", "feed_forward", "ffn", "moe"),
                "resid": lambda layer=layer: layer,
            }[site]()
            if module is None:
                raise DeltapError(f"{type(layer).__name__}: layer {index} has no module for site '{site}'")
            modules[site, index] = module
    return modules


def _child(layer: nn.Module, *words: str) -> nn.Module | None:
    """Return the layer's direct submodule that is named after one of ``words`` and is no norm or dropout."""
    for name, child in layer.named_children():
        if not any(word in name for word in ("norm", "dropout")) and any(word in name.lower() for word in words):
            return child
    return None


def refuse_unsupported(model: nn.Module) -> None:
    """Raise DeltapError for a model in which some token mixing has no attention logit to cut, or is not causal."""
    config = model.config.get_text_config()  # type: ignore[union-attr, operator]
    name = f"{type(model).__name__} ({config.model_type})"
    if getattr(config, "is_encoder_decoder", False):
        raise DeltapError(f"{name}: encoder-decoder models are not supported; knockout needs a causal decoder")
    # Some families write "vision" here: only images are seen in both directions.
    both_ways = getattr(config, "use_bidirectional_attention", None) in (True, "all")
    if both_ways or getattr(config, "is_causal", True) is False:
        raise DeltapError(f"{name}: attention is bidirectional; knockout needs a causal decoder")
    mixing = {
        kind for kind in getattr(config, "layer_types", None) or () if "attention" not in kind or "linear" in kind
    }
    modules = {
        type(module).__name__
        for path, module in model.named_modules()
        if any(word in f"{path.rsplit('.', 1)[-1]} {type(module).__name__}".lower() for word in _NO_LOGITS)
    }
    if mixing or modules:
        raise DeltapError(
            f"{name}: layers of type {', '.join(sorted(mixing | modules))} have no attention logits to cut; "
            "only causal softmax attention is supported"
        )
    layers = decoder_layers(model)
    if len({id(layer) for layer in layers}) != len(layers):
        raise DeltapError(f"{name}: layers are looped (one module used several times); two passes would not be enough")


def hidden_states(output: torch.Tensor | tuple) -> torch.Tensor:
    """Return the hidden states, shape (batch, positions, hidden), from a module's output."""
    return output if isinstance(output, torch.Tensor) else output[0]
