"""Attention knockout: cutting attention edges inside an unchanged transformers model.

transformers lets a program register attention functions under a name. The one registered here intersects the mask
that the model itself made (causal, sliding window, chunked, whatever its layers use) with the edges that are allowed.
So nothing has to be known about a model's masks, and every layer type is served alike.

Source of the method: Geva et al. 2023, "Dissecting Recall of Factual Associations in Auto-Regressive Language
Models"; which edges are cut: ``method.md``'s section Knockout, restated in the README.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
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


@dataclass(frozen=True)
class Cut:
    """What is cut in a pass over several sequences.

    For a key j of a sequence's ``keys`` and a query i > j that is not one of them, the attention logit is -inf, so that
    the remaining weights renormalise. Queries among the keys keep attending to each other. The method's own cut has E_Q
    as keys, every query, every layer and every head.
    """

    keys: Sequence[Sequence[int]]
    """Positions in each sequence, never 0."""
    first_query: Sequence[int] | None = None
    """For each sequence the first query that loses its edges; None: every query behind a key."""
    first_layer: int = 0
    last_layer: int | None = None
    """Cut in layers first_layer … last_layer; None: up to the last one."""
    head: int | None = None
    """Cut in this head alone; None: in every head."""

    def of(self, chosen: Sequence[int]) -> "Cut":
        """Return the cut of some of the sequences."""
        queries = None if self.first_query is None else [self.first_query[index] for index in chosen]
        return replace(self, keys=[self.keys[index] for index in chosen], first_query=queries)


@dataclass(frozen=True, eq=False)
class Edges:
    """The edges of a `Cut` in one batch."""

    keys: torch.Tensor
    """Boolean, shape (batch, positions): which positions of a whole sequence, prefix included, are blocked."""
    queries: torch.Tensor | None = None
    """Boolean, of the same shape: which queries lose them; None: all that are not keys themselves."""
    first_layer: int = 0
    last_layer: int | None = None
    """Cut in layers first_layer … last_layer; None: up to the last one."""
    head: int | None = None
    """Cut in this head alone; None: in every head."""
    heads: int = 1
    """How many heads a layer has, on all ranks together."""
    applied: set[int] = field(default_factory=set)
    """The layers in which the edges have been cut so far."""

    def __post_init__(self) -> None:
        if bool(self.keys[:, 0].any()):
            raise ValueError(
                "position 0 is an exact question token; models rest much of their attention on the first token, so "
                "cutting it would disturb everything: put a token (such as beginning-of-text) before the question"
            )

    @lru_cache(maxsize=4)  # noqa: B019 - lives as long as its batch
    def allowed(self, queries: int, keys: int, heads: int = 1) -> torch.Tensor:
        """Return what the last ``queries`` positions may attend of the last ``keys``.

        The shape is (batch, 1, queries, keys); where one head alone is cut, (batch, ``heads``, queries, keys), for the
        heads that this process holds.
        """
        total = self.keys.shape[1]
        key_in = self.keys[:, None, total - keys :]
        spared = self.keys if self.queries is None else self.keys | ~self.queries
        allowed = (~key_in | spared[:, total - queries :, None])[:, None]
        if self.head is None:
            return allowed
        # Of a model that ranks divide, each has so many of a layer's heads, in their order.
        first = 0 if heads == self.heads else torch.distributed.get_rank() * heads
        others = torch.arange(first, first + heads, device=allowed.device) != self.head
        return allowed | others[:, None, None]

    def cut_in(self, layer: int) -> bool:
        """Tell whether edges are cut in ``layer``."""
        return self.first_layer <= layer and (self.last_layer is None or layer <= self.last_layer)


class Weights:
    """The attention weights of one batch's clean pass, averaged over heads and layers as they come up."""

    def __init__(self, queries: int, keys: int) -> None:
        """Expect ``queries`` tokens that attend to ``keys`` ones, themselves included."""
        self._size = queries, keys
        self._total: torch.Tensor | None = None
        self._layers = 0

    def add(self, weights: torch.Tensor) -> None:
        """Add a layer's, (batch, heads, queries, keys); where it sees fewer keys, they are the last ones."""
        mean = weights.mean(dim=1, dtype=torch.float32)
        if self._total is None:
            self._total = mean.new_zeros(len(mean), *self._size)
        self._total[:, :, self._size[1] - mean.shape[2] :] += mean.to(self._total.device)
        self._layers += 1

    def mean(self) -> torch.Tensor:
        """Return the mean, float32, shape (batch, queries, keys); the rows of real tokens add up to 1."""
        assert self._total is not None
        return self._total / self._layers


_edges: ContextVar[Edges | None] = ContextVar("edges", default=None)
_weights: ContextVar[Weights | None] = ContextVar("weights", default=None)
_kernels: ContextVar[dict[str, str] | None] = ContextVar("kernels", default=None)


@contextmanager
def knockout(edges: Edges | None) -> Iterator[None]:
    """Cut ``edges`` in every forward pass inside the block (None cuts nothing)::

    with knockout(Edges(keys)):
        model(input_ids)
    """
    token = _edges.set(edges)
    try:
        yield
    finally:
        _edges.reset(token)


@contextmanager
def weights_noted(weights: Weights) -> Iterator[None]:
    """Add each layer's attention weights to ``weights`` inside the block, where plain algebra computes them."""
    token = _weights.set(weights)
    try:
        yield
    finally:
        _weights.reset(token)


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
    skip = allow_is_causal_skip and _edges.get() is None and _weights.get() is None and not capped
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
        allowed = edges.allowed(query.shape[2], key.shape[2], 1 if edges.head is None else query.shape[1])
        attention_mask = attention_mask & allowed.to(attention_mask.device)
    noted = _weights.get()
    if noted is not None:
        return _plainly(module, query, key, value, attention_mask, noted, **keywords), None

    def attend() -> torch.Tensor:
        if keywords.get("softcap") is not None:
            return _plainly(module, query, key, value, attention_mask, None, **keywords)
        return sdpa_attention_forward(module, query, key, value, attention_mask, **keywords)[0]

    kernels, kind = _kernels.get(), _kind(query, edges, attention_mask)
    if kernels is None or kind in kernels:
        return attend(), None
    result, kernel = watched(attend)
    kernels[kind] = kernel if keywords.get("softcap") is None else OWN
    return result, None


def _kind(query: torch.Tensor, edges: Edges | None, mask: torch.Tensor | None) -> str:
    if edges is not None:
        return "knockout" if edges.head is None else "knockout of one head"
    what = "single tokens" if query.shape[2] == 1 else "texts"
    return what if mask is None else f"{what} with a mask"


def _plainly(
    module: Any,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    mask: Any,
    noted: Weights | None,
    *,
    scaling: float | None = None,
    softcap: float | None = None,
    **keywords: Any,
) -> torch.Tensor:
    """Return attention computed step by step, for logits that are squeezed into ±softcap (Gemma 2), which SDPA does
    not know, and where the weights are wanted."""
    groups = getattr(module, "num_key_value_groups", 1)
    key, value = key.repeat_interleave(groups, dim=1), value.repeat_interleave(groups, dim=1)
    logits = query @ key.transpose(2, 3) * (query.shape[-1] ** -0.5 if scaling is None else scaling)
    if softcap is not None:
        logits = softcap * torch.tanh(logits / softcap)
    logits = logits.masked_fill(~mask, torch.finfo(logits.dtype).min)
    weights = torch.softmax(logits, dim=-1, dtype=torch.float32)
    if noted is not None:
        noted.add(weights)
    return (weights.to(query.dtype) @ value).transpose(1, 2).contiguous()


AttentionInterface.register(ATTENTION, _attention)
AttentionMaskInterface.register(ATTENTION, _mask)
