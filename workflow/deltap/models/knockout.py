"""Attention knockout: cutting attention edges inside an unchanged transformers model.

transformers lets a program register attention functions under a name. The one registered here intersects the mask
that the model itself made (causal, sliding window, chunked, whatever its layers use) with the edges that are allowed.
So nothing has to be known about a model's masks, and every layer type is served alike.

Source of the method: Geva et al. 2023, "Dissecting Recall of Factual Associations in Auto-Regressive Language
Models"; which edges are cut: ``method.md``'s section Knockout, restated in the README.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import torch
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import sdpa_mask

from deltap.errors import DeltapError
from deltap.models.backend import OWN, watched

ATTENTION = "knockout"
"""Name of the attention implementation that a model needs for knockout; without edges to cut it is plain SDPA.

The name does not hold "sdpa", else transformers would refuse families whose attention is more than SDPA, by a list of
its own. The check at load time finds them by their numbers (`deltap.models.check`)."""


@dataclass(frozen=True, eq=False)
class Edges:
    """The edges to cut in one batch: from every exact question token to every later position outside of them.

    For a key j in E_Q and a query i > j with i not in E_Q the attention logit is -inf, in every head. Queries inside
    E_Q keep attending to each other.
    """

    exact_question: torch.Tensor
    """Boolean, shape (batch, positions): which positions of the whole sequence, prefix included, are in E_Q."""
    last_layer: int | None = None
    """Cut in layers 0 … last_layer; None cuts in every layer."""
    applied: set[int] = field(default_factory=set)
    """The layers in which the edges have been cut so far."""

    def __post_init__(self) -> None:
        if bool(self.exact_question[:, 0].any()):
            raise ValueError(
                "position 0 is an exact question token; models rest much of their attention on the first token, so "
                "cutting it would disturb everything: put a token (such as beginning-of-text) before the question"
            )

    @lru_cache(maxsize=4)  # noqa: B019 - lives as long as its batch
    def allowed(self, queries: int, keys: int) -> torch.Tensor:
        """Return what the last ``queries`` positions may attend of the last ``keys``: (batch, 1, queries, keys)."""
        total = self.exact_question.shape[1]
        key_in = self.exact_question[:, None, total - keys :]
        query_in = self.exact_question[:, total - queries :, None]
        return (~key_in | query_in)[:, None]

    def cut_in(self, layer: int) -> bool:
        """Tell whether edges are cut in ``layer``."""
        return self.last_layer is None or layer <= self.last_layer


_edges: ContextVar[Edges | None] = ContextVar("edges", default=None)
_kernels: ContextVar[dict[str, str] | None] = ContextVar("kernels", default=None)


@contextmanager
def knockout(edges: Edges | None) -> Iterator[None]:
    """Cut ``edges`` in every forward pass inside the block (None cuts nothing)::

    with knockout(Edges(exact_question)):
        model(input_ids)
    """
    token = _edges.set(edges)
    try:
        yield
    finally:
        _edges.reset(token)


@contextmanager
def kernels_noted(kernels: dict[str, str]) -> Iterator[None]:
    """Note in ``kernels`` by which of torch's kernels attention is computed inside the block, by the kind of its mask.

    Kinds that are there already are not looked at again.
    """
    token = _kernels.set(kernels)
    try:
        yield
    finally:
        _kernels.reset(token)


def _mask(*, allow_is_causal_skip: bool = True, **keywords: Any) -> torch.Tensor | None:
    # With edges to cut the mask has to exist; SDPA's shortcut for purely causal attention leaves it out. Where
    # SDPA itself cannot be used the mask is needed too.
    capped = getattr(keywords.get("config"), "attn_logit_softcapping", None) is not None
    skip = allow_is_causal_skip and _edges.get() is None and not capped
    return sdpa_mask(allow_is_causal_skip=skip, **keywords)


def _attention(
    module: Any,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    **keywords: Any,
) -> tuple[torch.Tensor, None]:
    edges = _edges.get()
    if edges is not None and edges.cut_in(module.layer_idx):
        if attention_mask is None or attention_mask.dtype != torch.bool:
            raise DeltapError(
                f"{type(module).__name__} makes no boolean attention mask, as if it saw the text in both directions; "
                "knockout cannot cut its edges, so this model cannot be measured"
            )
        edges.applied.add(module.layer_idx)
        attention_mask = attention_mask & edges.allowed(query.shape[2], key.shape[2]).to(attention_mask.device)

    def attend() -> torch.Tensor:
        if keywords.get("softcap") is not None:
            return _softcapped(module, query, key, value, attention_mask, **keywords)
        return sdpa_attention_forward(module, query, key, value, attention_mask, **keywords)[0]

    kernels, kind = _kernels.get(), _kind(query, edges, attention_mask)
    if kernels is None or kind in kernels:
        return attend(), None
    result, kernel = watched(attend)
    kernels[kind] = kernel if keywords.get("softcap") is None else OWN
    return result, None


def _kind(query: torch.Tensor, edges: Edges | None, mask: torch.Tensor | None) -> str:
    if edges is not None:
        return "knockout"
    what = "single tokens" if query.shape[2] == 1 else "texts"
    return what if mask is None else f"{what} with a mask"


def _softcapped(
    module: Any,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: Any,
    *,
    scaling: float,
    softcap: float,
    **keywords: Any,
) -> torch.Tensor:
    """Return attention whose logits are squeezed into ±softcap (Gemma 2), which SDPA does not know."""
    groups = module.num_key_value_groups
    key, value = key.repeat_interleave(groups, dim=1), value.repeat_interleave(groups, dim=1)
    logits = softcap * torch.tanh(query @ key.transpose(2, 3) * scaling / softcap)
    logits = logits.masked_fill(~attention_mask, torch.finfo(logits.dtype).min)
    weights = torch.softmax(logits, dim=-1, dtype=torch.float32).to(query.dtype)
    return (weights @ value).transpose(1, 2).contiguous()


AttentionInterface.register(ATTENTION, _attention)
AttentionMaskInterface.register(ATTENTION, _mask)
