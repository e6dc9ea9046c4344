"""The engine: the one interface between the method and a loaded model."""

import copy
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import torch
from torch import nn
from transformers import DynamicCache

from deltap.errors import DeltapError
from deltap.models.batches import by_length, of_equal_length
from deltap.models.capture import capture
from deltap.models.knockout import Edges, knockout
from deltap.models.layers import decoder_layers, site_modules
from deltap.models.memory import out_of_memory

Activations = dict[str, torch.Tensor]
"""For each site a tensor of shape (layers, samples, positions, hidden), on the host, in the model's dtype."""


class NotFinite(Exception):
    """The logits of a prompt are NaN or infinite, so that its answer would mean nothing."""

    def __init__(self, prompt: int) -> None:
        super().__init__(f"NaN or infinity in the logits of prompt {prompt}")
        self.prompt = prompt
        """Index of the prompt."""


class Engine:
    """A model that answers prompts and shows its activations, clean or under knockout.

    Sequences are lists of token ids. Those that begin with the shared prefix (`share_prefix`) are computed from its
    keys and values, which are computed once; the results are the same within float rounding.
    """

    def __init__(self, model: nn.Module, batch_tokens: int, device: torch.device | None = None) -> None:
        """``device``: where token ids go, by default where the model is."""
        self.model = model.eval()
        self.device: torch.device = device or model.device  # type: ignore[assignment]
        self.ranks = 1
        self.batch_tokens = batch_tokens
        self.layers = len(decoder_layers(model))
        self._config = model.config.get_text_config()  # type: ignore[union-attr, operator]
        self._prefix_ids: list[int] = []
        self._prefix_cache: Any = None

    @property
    def hidden(self) -> int:
        """Size of the hidden states."""
        return self._config.hidden_size

    @property
    def dtype(self) -> torch.dtype:
        """Of the activations."""
        return self.model.dtype  # type: ignore[return-value]

    @property
    def max_positions(self) -> int | None:
        """The longest sequence that the model takes, where its configuration says so.

        One kind of rotary embedding (longrope) turns to other frequencies for all of a batch as soon as one sequence in
        it is longer than those the model was first trained on. Beyond them results would depend on the batch.
        """
        rope = getattr(self._config, "rope_parameters", None) or {}
        names = ["max_position_embeddings"]
        if rope.get("rope_type") == "longrope":
            names.append("original_max_position_embeddings")
        limits = [getattr(self._config, name, None) or rope.get(name) for name in names]
        return min((limit for limit in limits if limit), default=None)

    def follow(self) -> None:
        """Let other processes that hold the model do as this one does; one process follows nobody."""

    @torch.inference_mode()
    def share_prefix(self, ids: Sequence[int]) -> None:
        """Compute the keys and values of ``ids`` once, for all sequences that begin with them."""
        self._prefix_ids, self._prefix_cache = list(ids), None
        if ids:
            self._prefix_cache = DynamicCache(config=self._config)
            self._backbone(torch.tensor([list(ids)], device=self.device), self._prefix_cache)

    @torch.inference_mode()
    def generate(
        self,
        prompts: Sequence[Sequence[int]],
        end_ids: set[int],
        max_new_tokens: int,
        progress: Callable[[int], object] = lambda done: None,
    ) -> list[list[int]]:
        """Return the greedy continuation of each prompt, up to and without the first token of ``end_ids``.

        Prompts of different lengths are padded between the shared prefix and the rest, where every padded token has
        something to attend to. Without a prefix, and where a text is longer than a layer's window, which would count
        padding as distance, batches hold prompts of one length instead. A continuation of ``max_new_tokens`` tokens was
        cut off. ``progress`` is told the number of prompts done after each batch. Raises NotFinite for a model that
        overflows.
        """
        answers: list[list[int]] = [[] for _ in prompts]
        for shared, indices in self._by_prefix(prompts):
            lengths = [len(prompts[index]) - shared + max_new_tokens for index in indices]
            divide = by_length if shared and shared + max(lengths) <= self._narrowest_window() else of_equal_length
            for batch in divide(lengths, self.batch_tokens):
                chosen = [indices[item] for item in batch]
                longest = max(len(prompts[index]) for index in chosen)
                ids = torch.full((len(chosen), longest), min(end_ids), device=self.device)
                mask = torch.ones_like(ids)
                for row, index in enumerate(chosen):
                    padding = longest - len(prompts[index])
                    ids[row, :shared] = torch.tensor(prompts[index][:shared])
                    ids[row, shared + padding :] = torch.tensor(prompts[index][shared:])
                    mask[row, shared : shared + padding] = 0
                cache = self._cache(shared, len(chosen))
                try:
                    with self._room(max(lengths) * len(batch)):
                        continued = self._decode(ids, mask, cache, shared, end_ids, max_new_tokens)
                except NotFinite as error:
                    raise NotFinite(chosen[error.prompt]) from None
                for index, answer in zip(chosen, continued, strict=True):
                    answers[index] = answer
                progress(len(chosen))
        return answers

    def _narrowest_window(self) -> float:
        windows = [layer.sliding_window for layer in self._prefix_cache.layers if layer.is_sliding]
        return min(windows, default=math.inf)

    def _decode(
        self, ids: torch.Tensor, mask: torch.Tensor, cache: Any, shared: int, end_ids: set[int], max_new_tokens: int
    ) -> list[list[int]]:
        """Return greedy continuations; a sequence that has ended leaves the batch, which is what takes the time."""
        ends = torch.tensor(sorted(end_ids), device=ids.device)
        cache = cache or DynamicCache(config=self._config)
        answers: list[list[int]] = [[] for _ in ids]
        rows = torch.arange(len(ids), device=ids.device)
        tokens, places = ids[:, shared:], (mask.cumsum(dim=1) - 1).clamp(min=0)[:, shared:]
        for _ in range(max_new_tokens):
            logits = self.model(
                tokens, attention_mask=mask, position_ids=places, cache=cache, use_cache=True, logits_to_keep=1
            ).logits[:, -1]
            finite = torch.isfinite(logits.amax(dim=-1))  # -inf for single tokens is a model's way to rule them out
            best = self._agreed(logits.argmax(dim=-1).where(finite, -1))
            if bool((best < 0).any()):
                raise NotFinite(int(rows[best < 0][0]))
            going = ~torch.isin(best, ends)
            for row, token in zip(rows[going].tolist(), best[going].tolist(), strict=True):
                answers[row].append(token)
            if not bool(going.any()):
                break
            if not bool(going.all()):
                cache.batch_select_indices(going.nonzero()[:, 0].to("cpu"))  # layers may be on several devices
            rows, tokens = rows[going], best[going, None]
            mask = torch.nn.functional.pad(mask[going], (0, 1), value=1)
            places = places[going, -1:] + 1
        return answers

    def _agreed(self, tokens: torch.Tensor) -> torch.Tensor:
        """Return the same tokens on every process that holds a part of the model."""
        return tokens

    @torch.inference_mode()
    def forward(
        self,
        sequences: Sequence[Sequence[int]],
        positions: Sequence[Sequence[int]],
        sites: tuple[str, ...],
        exact_question: Sequence[Sequence[int]] | None = None,
        last_layer: int | None = None,
        own_attention: bool = False,
        progress: Callable[[int], object] = lambda done: None,
    ) -> Activations:
        """Run the model over whole sequences and return the activations at ``positions``, for each site.

        ``positions[i]`` are the token positions read in sequence i, the same number in each. With ``exact_question``
        (positions of E_Q for each sequence) their edges are cut in layers 0 … ``last_layer`` (default: all). With
        ``own_attention`` the model's attention is the one that its authors wrote, which cuts nothing. The
        language-model head is not computed. ``progress`` is told the number of sequences done after each batch.
        """
        result: Activations = {}
        for shared, indices in self._by_prefix(sequences, exact_question, positions):
            for batch in by_length([len(sequences[index]) - shared for index in indices], self.batch_tokens):
                chosen = [indices[item] for item in batch]
                own = _own_attention(self.model) if own_attention else nullcontext()
                with own, self._room(sum(len(sequences[index]) - shared for index in chosen)):
                    found = self._forward_batch(
                        [sequences[index] for index in chosen],
                        [positions[index] for index in chosen],
                        sites,
                        [exact_question[index] for index in chosen] if exact_question is not None else None,
                        last_layer,
                        shared,
                    )
                for site, states in found.items():
                    if site not in result:
                        result[site] = states.new_empty(states.shape[0], len(sequences), *states.shape[2:])
                    result[site][:, chosen] = states
                progress(len(chosen))
        return result

    def _forward_batch(
        self,
        sequences: list[Sequence[int]],
        positions: list[Sequence[int]],
        sites: tuple[str, ...],
        exact_question: list[Sequence[int]] | None,
        last_layer: int | None,
        shared: int,
    ) -> Activations:
        # Padding stands at the right, where under causal attention no token that is read can see it.
        longest = max(map(len, sequences))
        ids = torch.zeros(len(sequences), longest - shared, dtype=torch.long, device=self.device)
        for row, sequence in enumerate(sequences):
            ids[row, : len(sequence) - shared] = torch.tensor(sequence[shared:])
        edges = None
        if exact_question is not None:
            in_question = torch.zeros(len(sequences), longest, dtype=torch.bool, device=self.device)
            for row, tokens in enumerate(exact_question):
                in_question[row, list(tokens)] = True
            edges = Edges(in_question, last_layer)
        where = torch.tensor([list(row) for row in positions], device=self.device) - shared
        modules = site_modules(self.model, sites)
        with knockout(edges), capture(modules, where) as activations:
            self._backbone(ids, self._cache(shared, len(sequences)))
        if edges is not None:
            self._refuse_partial(edges)
        return self._collected(activations, sites)

    def _collected(self, activations: dict[tuple[str, int], torch.Tensor], sites: tuple[str, ...]) -> Activations:
        """Return the activations of a pass, layers stacked, on the host."""
        return {
            site: torch.stack([activations[site, layer].to("cpu") for layer in range(self.layers)]) for site in sites
        }

    def _room(self, tokens: int) -> AbstractContextManager[None]:
        return out_of_memory(
            f"a batch of {tokens} tokens beside the model",
            f"lower batch_tokens (now {self.batch_tokens}) or give the model more gpus, or memory_mb on the CPU",
        )

    def _refuse_partial(self, edges: Edges) -> None:
        missing = sorted({layer for layer in range(self.layers) if edges.cut_in(layer)} - edges.applied)
        if missing:
            raise DeltapError(
                f"{type(self.model).__name__}: attention was not cut in layers {', '.join(map(str, missing))}; these "
                "layers do not use transformers' attention interface, so this model cannot be measured by knockout"
            )

    def _backbone(self, ids: torch.Tensor, cache: Any) -> None:
        """Run the model without its language-model head."""
        self.model.base_model(ids, cache=cache, use_cache=cache is not None)  # type: ignore[operator, union-attr]

    def _cache(self, shared: int, batch: int) -> Any:
        if not shared:
            return None
        cache = copy.deepcopy(self._prefix_cache)
        cache.batch_repeat_interleave(batch)
        return cache

    def _by_prefix(
        self,
        sequences: Sequence[Sequence[int]],
        exact_question: Sequence[Sequence[int]] | None = None,
        positions: Sequence[Sequence[int]] | None = None,
    ) -> list[tuple[int, list[int]]]:
        """Divide sequences into those that can start from the shared prefix (with its length) and the others (0)."""
        length = len(self._prefix_ids)

        def shares(index: int) -> bool:
            inside = [
                *(exact_question[index] if exact_question else ()),
                *(positions[index] if positions else ()),
            ]
            return (
                length < len(sequences[index])
                and list(sequences[index][:length]) == self._prefix_ids
                and min(inside, default=length) >= length
            )

        with_prefix = [index for index in range(len(sequences)) if length and shares(index)]
        rest = sorted(set(range(len(sequences))) - set(with_prefix))
        return [(shared, indices) for shared, indices in ((length, with_prefix), (0, rest)) if indices]


@contextmanager
def _own_attention(model: Any) -> Iterator[None]:
    """Let the model use the attention that its authors wrote (sinks, caps and all) inside the block."""
    used = model.config._attn_implementation
    model.set_attn_implementation("eager")
    try:
        yield
    finally:
        model.set_attn_implementation(used)
