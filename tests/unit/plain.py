"""Decoder-only transformers in plain matrix algebra, one sequence at a time: the reference for knockout.

Written from the architecture's formulas (RMS norm, rotary embedding, grouped heads, gated MLP), not from transformers.
"""

import math
from collections.abc import Callable

import torch

Severed = Callable[[int, int, int, int], bool]
"""Whether the edge from a layer's, a head's query to a key is cut."""


def knockout(cut: list[int], last_layer: int) -> Severed:
    """Return what the method cuts in layers 0 … last_layer."""
    return lambda layer, head, query, key: layer <= last_layer and key in cut and query not in cut


def nothing(layer: int, head: int, query: int, key: int) -> bool:
    """Cut no edge."""
    return False


def activations(model: torch.nn.Module, ids: list[int], severed: Severed = nothing) -> dict[str, list[torch.Tensor]]:
    """Return per site and layer the activations, shape (positions, hidden), with the edges cut that are ``severed``."""
    weights, config = dict(model.state_dict()), model.config
    heads, groups = config.num_attention_heads, config.num_key_value_heads
    size = getattr(config, "head_dim", None) or config.hidden_size // heads
    n = len(ids)
    hidden = weights["model.embed_tokens.weight"][ids]
    result: dict[str, list[torch.Tensor]] = {"attn": [], "mlp": [], "resid": []}
    for layer in range(config.num_hidden_layers):
        w = {
            name.split(f"layers.{layer}.")[1]: tensor for name, tensor in weights.items() if f"layers.{layer}." in name
        }
        x = _norm(hidden, w["input_layernorm.weight"], config.rms_norm_eps)
        out = torch.zeros(n, heads * size)
        for head in range(heads):
            group = head // (heads // groups)
            rows, group_rows = slice(head * size, (head + 1) * size), slice(group * size, (group + 1) * size)
            q = x @ w["self_attn.q_proj.weight"][rows].T
            k = x @ w["self_attn.k_proj.weight"][group_rows].T
            v = x @ w["self_attn.v_proj.weight"][group_rows].T
            if "self_attn.q_norm.weight" in w:
                q = _norm(q, w["self_attn.q_norm.weight"], config.rms_norm_eps)
                k = _norm(k, w["self_attn.k_norm.weight"], config.rms_norm_eps)
            q, k = _rotate(q, config.rope_parameters["rope_theta"]), _rotate(k, config.rope_parameters["rope_theta"])
            for i in range(n):
                window = getattr(config, "sliding_window", None) or n
                seen = [j for j in range(i + 1) if i - j < window and not severed(layer, head, i, j)]
                logits = torch.stack([q[i] @ k[j] for j in seen]) / math.sqrt(size)
                out[i, rows] = torch.softmax(logits, 0) @ v[seen]
        attn = out @ w["self_attn.o_proj.weight"].T
        hidden = hidden + attn
        x = _norm(hidden, w["post_attention_layernorm.weight"], config.rms_norm_eps)
        gate = torch.nn.functional.silu(x @ w["mlp.gate_proj.weight"].T)
        mlp = (gate * (x @ w["mlp.up_proj.weight"].T)) @ w["mlp.down_proj.weight"].T
        hidden = hidden + mlp
        for site, value in (("attn", attn), ("mlp", mlp), ("resid", hidden)):
            result[site].append(value)
    return result


def _norm(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    return x / torch.sqrt((x * x).mean(-1, keepdim=True) + eps) * weight


def _rotate(x: torch.Tensor, theta: float) -> torch.Tensor:
    """Rotary position embedding: element i goes with element i + half."""
    n, size = x.shape
    half = size // 2
    frequency = theta ** (-torch.arange(half).float() * 2 / size)
    angle = torch.arange(n).float()[:, None] * frequency
    a, b = x[:, :half], x[:, half:]
    return torch.cat([a * angle.cos() - b * angle.sin(), b * angle.cos() + a * angle.sin()], dim=1)
