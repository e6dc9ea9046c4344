"""The engine: the one interface between the method and a loaded model."""

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any

import torch
from torch import nn
from transformers import Cache, DynamicCache

from deltap.errors import DeltapError
from deltap.models.backend import PLAIN
from deltap.models.batches import Batch, Divide, by_length, of_equal_length
from deltap.models.capture import capture
from deltap.models.knockout import Cut, Edges, Weights, kernels_noted, knockout, weights_noted
from deltap.models.layers import decoder_layers, site_modules
from deltap.models.memory import does_not_fit, is_out_of_memory
from deltap.models.prefix import beginning, growing, narrowest_window
from deltap.models.trace import Activations, Trace
from deltap.models.windows import CleanStates, Window

logger = logging.getLogger("deltap")

Places = Callable[[int, list[int]], Sequence[int]]
"""For a prompt (its index) and its answer: the positions, in both together, whose activations are wanted."""


class NotFinite(DeltapError):
    """The logits of a prompt are NaN or infinite, so that its answer would mean nothing."""

    def __init__(self, prompt: int) -> None:
        super().__init__(
            f"NaN or infinity in the logits of prompt {prompt}; try 'dtype: bfloat16' or 'float32' for the model"
        )
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
        self._prefix: Cache = self._nothing()
        self.kernels: dict[str, str] = {}
        """By which kernel attention was computed, for each kind of pass; what is there is not looked at again."""

    @property
    def hidden(self) -> int:
        """Size of the hidden states."""
        return self._config.hidden_size

    @property
    def heads(self) -> int:
        """How many heads a layer's attention has, on all ranks together."""
        return self._config.num_attention_heads

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
        self._prefix_ids, self._prefix = list(ids), self._nothing()
        if ids:
            self._backbone(torch.tensor([list(ids)], device=self.device), self._prefix)

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
        return self.generate_and_read(prompts, end_ids, max_new_tokens, (), None, progress)[0]

    @torch.inference_mode()
    def generate_and_read(
        self,
        prompts: Sequence[Sequence[int]],
        end_ids: set[int],
        max_new_tokens: int,
        sites: tuple[str, ...],
        places: Places | None,
        progress: Callable[[int], object] = lambda done: None,
    ) -> tuple[list[list[int]], dict[int, Activations]]:
        """Return what `generate` does, and the activations that came up on the way, by the prompts' indices.

        ``places`` is asked once for each answer; positions are at or after the prompt's last token. A prompt has no
        activations if none are wanted, or if one of them did not come up: that of the last token of an answer that was
        cut off. They are those of `forward` within float rounding.
        """
        found: dict[int, Activations] = {}
        answers: list[list[int]] = [[] for _ in prompts]
        for shared, indices in self._by_prefix(prompts):

            def answer(items: list[int], shared: int = shared, indices: list[int] = indices) -> None:
                chosen = [indices[item] for item in items]
                longest = max(len(prompts[index]) for index in chosen)
                ids = torch.full((len(chosen), longest), min(end_ids), device=self.device)
                mask = torch.ones_like(ids)
                for row, index in enumerate(chosen):
                    padding = longest - len(prompts[index])
                    ids[row, :shared] = torch.tensor(prompts[index][:shared])
                    ids[row, shared + padding :] = torch.tensor(prompts[index][shared:])
                    mask[row, shared : shared + padding] = 0
                cache = growing(self._start(shared), len(chosen))
                trace = Trace(sites, self.layers) if places else None
                try:
                    continued = self._decode(ids, mask, cache, shared, end_ids, max_new_tokens, trace)
                except NotFinite as error:
                    raise NotFinite(chosen[error.prompt]) from None
                for row, (index, tokens) in enumerate(zip(chosen, continued, strict=True)):
                    answers[index] = tokens
                    found.pop(index, None)  # of a try for which memory did not suffice
                    if trace and places:
                        first = len(prompts[index]) - 1
                        steps = [position - first for position in places(index, tokens)]
                        if steps and (read := trace.at(row, steps)):
                            found[index] = read
                progress(len(chosen))

            lengths = [len(prompts[index]) - shared + max_new_tokens for index in indices]
            padded = shared and shared + max(lengths) <= narrowest_window(self._prefix)
            self._in_batches(lengths, by_length if padded else of_equal_length, answer)
        return answers, found

    def _decode(
        self,
        ids: torch.Tensor,
        mask: torch.Tensor,
        cache: Cache,
        shared: int,
        end_ids: set[int],
        max_new_tokens: int,
        trace: Trace | None,
    ) -> list[list[int]]:
        """Return greedy continuations; a sequence that has ended leaves the batch, which is what takes the time."""
        modules = site_modules(self.model, trace.sites) if trace else {}
        ends = torch.tensor(sorted(end_ids), device=ids.device)
        answers: list[list[int]] = [[] for _ in ids]
        rows = torch.arange(len(ids), device=ids.device)
        tokens, places = ids[:, shared:], (mask.cumsum(dim=1) - 1).clamp(min=0)[:, shared:]
        for _ in range(max_new_tokens):
            last = torch.full((len(tokens), 1), tokens.shape[1] - 1, device=tokens.device)
            with capture(modules, last) as states:
                logits = self.model(
                    tokens, attention_mask=mask, position_ids=places, cache=cache, use_cache=True, logits_to_keep=1
                ).logits[:, -1]
            if trace:
                trace.add(rows.tolist(), states)
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
        cut = None if exact_question is None else Cut(exact_question, last_layer=last_layer)
        with _own_attention(self.model) if own_attention else nullcontext():
            return self._passes(sequences, positions, sites, [cut], progress)[0]

    @torch.inference_mode()
    def clean_and_knockout(
        self,
        sequences: Sequence[Sequence[int]],
        positions: Sequence[Sequence[int]],
        sites: tuple[str, ...],
        exact_question: Sequence[Sequence[int]],
        progress: Callable[[int], object] = lambda done: None,
    ) -> tuple[Activations, Activations]:
        """Return what `forward` gives without and with ``exact_question``, in the same batches.

        What stands before the exact question is the same in both passes and is computed once. ``progress`` is told the
        number of passes done.
        """
        clean, cut = self._passes(sequences, positions, sites, [None, Cut(exact_question)], progress)
        return clean, cut

    @torch.inference_mode()
    def passes(
        self,
        sequences: Sequence[Sequence[int]],
        positions: Sequence[Sequence[int]],
        sites: tuple[str, ...],
        cuts: Sequence[Cut | None],
        progress: Callable[[int], object] = lambda done: None,
    ) -> list[Activations]:
        """Return the activations of one pass for each of ``cuts`` (None: clean), all in the same batches.

        What stands before every cut is computed once. A sequence of which a token of the shared prefix is cut is
        computed from its beginning in all of these passes. ``progress`` is told the number of passes done.
        """
        return self._passes(sequences, positions, sites, cuts, progress)

    @torch.inference_mode()
    def windows(
        self,
        sequences: Sequence[Sequence[int]],
        positions: Sequence[Sequence[int]],
        sites: tuple[str, ...],
        keys: Sequence[Sequence[int]],
        windows: Sequence[Window],
        progress: Callable[[int], object] = lambda done: None,
    ) -> Activations:
        """Return the activations under knockout in each of ``windows``, each restarted from the clean hidden states.

        ``keys`` are cut as those of a `Cut`. For each site a tensor of shape (windows, samples, positions, hidden), on
        the host. ``progress`` is told the number of sequences done after each batch.
        """
        (found,) = self._batched(
            sequences, positions, [Cut(keys)], lambda batch: [self._window_batch(batch, sites, windows)], progress
        )
        return found

    @torch.inference_mode()
    def attention(
        self,
        sequences: Sequence[Sequence[int]],
        first_queries: Sequence[int],
        progress: Callable[[int], object] = lambda done: None,
    ) -> list[torch.Tensor]:
        """Return how much the tokens of each sequence attend to each other in the clean pass: mean over heads, layers.

        For each sequence a tensor of shape (queries, keys), float32, on the host: row r is the query
        ``first_queries[i]`` + r, and adds up to 1. ``progress`` is told the number of sequences done after each batch.
        """
        found: list[torch.Tensor] = [torch.empty(0)] * len(sequences)

        def read(chosen: list[int], batch: Batch) -> None:
            ids = batch.ids(self.device)
            weights = Weights(ids.shape[1] - batch.shared, ids.shape[1])
            with weights_noted(weights):
                self._backbone(ids[:, batch.shared :], beginning(self._start(batch.shared), len(ids)))
            mean = self._over_ranks(weights.mean()).to("cpu")
            for row, index in enumerate(chosen):
                length = len(sequences[index])
                # A copy, lest each keeps the whole batch.
                found[index] = mean[row, first_queries[index] - batch.shared : length - batch.shared, :length].clone()
            progress(len(chosen))

        self._each_batch(sequences, [[query] for query in first_queries], [None], read)
        return found

    def _passes(
        self,
        sequences: Sequence[Sequence[int]],
        positions: Sequence[Sequence[int]],
        sites: tuple[str, ...],
        cuts: Sequence[Cut | None],
        progress: Callable[[int], object],
    ) -> list[Activations]:
        """Return the activations of one pass for each of ``cuts``."""
        if not cuts:
            return []
        return self._batched(sequences, positions, cuts, lambda batch: self._pass_batch(batch, sites), progress)

    def _batched(
        self,
        sequences: Sequence[Sequence[int]],
        positions: Sequence[Sequence[int]],
        cuts: Sequence[Cut | None],
        compute: Callable[[Batch], list[Activations]],
        progress: Callable[[int], object],
    ) -> list[Activations]:
        """Return what ``compute`` returns of each batch, put together; the second dimension is the sequences'."""
        results: list[Activations] = [{} for _ in cuts]

        def read(chosen: list[int], batch: Batch) -> None:
            for result, found in zip(results, compute(batch), strict=True):
                for site, states in found.items():
                    if site not in result:
                        result[site] = states.new_empty(states.shape[0], len(sequences), *states.shape[2:])
                    result[site][:, chosen] = states
            progress(len(cuts) * len(chosen))

        self._each_batch(sequences, positions, cuts, read)
        return results

    def _each_batch(
        self,
        sequences: Sequence[Sequence[int]],
        positions: Sequence[Sequence[int]],
        cuts: Sequence[Cut | None],
        read: Callable[[list[int], Batch], None],
    ) -> None:
        """Let ``read`` have batch after batch, with the indices of its sequences."""
        for shared, indices in self._by_prefix(sequences, [cut.keys for cut in cuts if cut is not None], positions):

            def compute(items: list[int], shared: int = shared, indices: list[int] = indices) -> None:
                chosen = [indices[item] for item in items]
                batch = Batch(
                    [sequences[index] for index in chosen],
                    [positions[index] for index in chosen],
                    [cut and cut.of(chosen) for cut in cuts],
                    shared,
                )
                read(chosen, batch)

            self._in_batches([len(sequences[index]) - shared for index in indices], by_length, compute)

    def _pass_batch(self, batch: Batch, sites: tuple[str, ...]) -> list[Activations]:
        start, first = self._begun(batch, passes=len(batch.cuts))
        ids = batch.ids(self.device)
        where = torch.tensor([list(row) for row in batch.positions], device=self.device) - first
        modules = site_modules(self.model, sites)
        found = []
        for cut in batch.cuts:
            edges = None if cut is None else batch.edges(cut, self.heads, self.device)
            with knockout(edges), capture(modules, where) as activations:
                self._backbone(ids[:, first:], beginning(start, len(ids)))
            if edges is not None:
                self._refuse_partial(edges)
            found.append(self._collected(activations, sites))
        return found

    def _window_batch(self, batch: Batch, sites: tuple[str, ...], windows: Sequence[Window]) -> Activations:
        (cut,) = batch.cuts
        assert cut is not None
        start, first = self._begun(batch, passes=2)
        ids, layers = batch.ids(self.device), decoder_layers(self.model)
        where = torch.tensor([list(row) for row in batch.positions], device=self.device) - first
        modules = site_modules(self.model, sites)

        def run() -> None:
            self._backbone(ids[:, first:], beginning(start, len(ids)))

        read = sorted({window.read for window in windows})
        clean = CleanStates(layers)
        with capture({key: modules[key] for key in modules if key[1] in read}, where) as undisturbed:
            clean.keep(run, read[-1])
        found: dict[tuple[str, int], torch.Tensor] = {}
        for number, window in enumerate(windows):
            activations = undisturbed
            if window.first <= window.read:
                edges = batch.edges(window.cut(cut), self.heads, self.device)
                at_end = {(site, window.read): modules[site, window.read] for site in sites}
                with knockout(edges), capture(at_end, where) as activations:
                    clean.restart(run, window.first, window.read)
                self._refuse_partial(edges, window.read)
            found |= {(site, number): activations[site, window.read] for site in sites}
        return self._collected(found, sites, len(windows))

    def _begun(self, batch: Batch, passes: int) -> tuple[Cache, int]:
        """Return the keys and values of what a batch's ``passes`` have in common, and how many tokens that is."""
        start, first = self._start(batch.shared), batch.shared
        if batch.common > first and passes > 1:
            start = growing(start, len(batch.sequences))
            self._backbone(batch.ids(self.device)[:, first : batch.common], start)
            first = batch.common
        return start, first

    def _collected(
        self, activations: dict[tuple[str, int], torch.Tensor], sites: tuple[str, ...], number: int | None = None
    ) -> Activations:
        """Return the activations of a pass's layers, or of ``number`` windows, stacked, on the host."""
        return {
            site: torch.stack([activations[site, index].to("cpu") for index in range(number or self.layers)])
            for site in sites
        }

    def _over_ranks(self, mean: torch.Tensor) -> torch.Tensor:
        """Return the mean over all heads, of which every process that holds a part of the model has its own mean."""
        return mean

    def _in_batches(self, lengths: Sequence[int], divide: Divide, compute: Callable[[list[int]], None]) -> None:
        """Compute items of so many tokens batch by batch; where memory runs out, go on with smaller batches.

        The next call begins with ``batch_tokens`` again, so that what a chunk is computed in does not depend on others.
        Raises DeltapError with the remedy where one item alone does not fit, or where several ranks hold the model: all
        of them would have to run out at the same place.
        """
        budget = self.batch_tokens
        waiting = list(divide(lengths, budget))
        while waiting:
            items = waiting[0]
            tokens = len(items) * max(lengths[item] for item in items)
            try:
                self._observed(compute, items)
                waiting.pop(0)
                continue
            except (MemoryError, RuntimeError) as error:
                if not is_out_of_memory(error):
                    raise
                if len(items) == 1 or self.ranks > 1:
                    raise does_not_fit(
                        error,
                        f"a batch of {tokens} tokens beside the model",
                        f"lower batch_tokens (now {self.batch_tokens}) or give the model more gpus, or memory_mb on "
                        "the CPU",
                    ) from error
            # Outside of the exception, which keeps what it failed with in memory.
            budget = tokens // 2
            logger.warning(
                "out of memory with a batch of %d tokens; going on with %d (lower batch_tokens to begin with fewer)",
                tokens,
                budget,
            )
            if torch.cuda.is_available():
                torch.cuda.empty_cache()
            left = sorted(item for batch in waiting for item in batch)
            waiting = [[left[item] for item in batch] for batch in divide([lengths[item] for item in left], budget)]

    def _observed(self, compute: Callable[[list[int]], None], items: list[int]) -> None:
        """Compute a batch; tell the log of each kernel by which attention is computed for the first time."""
        known = set(self.kernels)
        with kernels_noted(self.kernels):
            compute(items)
        for kind in sorted(self.kernels.keys() - known):
            slow = self.kernels[kind] == PLAIN and self.device.type == "cuda"
            logger.log(
                logging.WARNING if slow else logging.INFO,
                "attention of %s on %s: %s%s",
                kind,
                self.device.type,
                self.kernels[kind],
                "; slower than need be, see docs/engines.md" if slow else "",
            )

    def _refuse_partial(self, edges: Edges, last: int | None = None) -> None:
        """Raise DeltapError unless the edges were cut in every layer of their own up to ``last``, where a pass ends."""
        computed = range(self.layers if last is None else last + 1)
        missing = sorted({layer for layer in computed if edges.cut_in(layer)} - edges.applied)
        if missing:
            raise DeltapError(
                f"{type(self.model).__name__}: attention was not cut in layers {', '.join(map(str, missing))}; these "
                "layers do not use transformers' attention interface, so this model cannot be measured by knockout"
            )

    def _backbone(self, ids: torch.Tensor, cache: Cache) -> None:
        """Run the model without its language-model head."""
        self.model.base_model(ids, cache=cache, use_cache=True)  # type: ignore[operator, union-attr]

    def _nothing(self) -> Cache:
        return DynamicCache(config=self._config)

    def _start(self, shared: int) -> Cache:
        """Return the keys and values that sequences begin with: those of the shared prefix, or none."""
        return self._prefix if shared else self._nothing()

    def _by_prefix(
        self,
        sequences: Sequence[Sequence[int]],
        cuts: Sequence[Sequence[Sequence[int]]] = (),
        positions: Sequence[Sequence[int]] | None = None,
    ) -> list[tuple[int, list[int]]]:
        """Divide sequences into those that can start from the shared prefix (with its length) and the others (0).

        Of the former no token of the prefix is cut or read; ``cuts`` are the keys that are cut, pass by pass.
        """
        length = len(self._prefix_ids)

        def shares(index: int) -> bool:
            inside = [
                *(position for cut in cuts for position in cut[index]),
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
