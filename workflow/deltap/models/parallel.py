"""The engine of a model that several ranks hold together.

The first rank leads: it alone reads questions, decides and writes. Each call of its engine is told to the others, which
do the same with their parts of the model. So ranks cannot disagree about what is computed, and nothing outside of the
engine knows of them.
"""

import datetime
import os
import time
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.distributed
from torch import nn

from deltap import ranks
from deltap.errors import DeltapError
from deltap.models.engine import Engine, NotFinite, Places
from deltap.models.knockout import Cut
from deltap.models.trace import Activations
from deltap.models.windows import Window

# A rank that waits for the first one to write or to find its chunks is no error; one that ends is noticed at once.
_PATIENCE = datetime.timedelta(days=7)
# An error that all ranks have in common is the first one's to tell; seconds that the others wait with theirs.
_FIRST_SAYS = 5


def join(device: torch.device) -> torch.device:
    """Let this rank meet the others; return its own device.

    Raises DeltapError if there are more ranks than GPUs on this node.
    """
    here = ranks.here()
    if device.type == "cuda":
        gpus = torch.cuda.device_count()
        if here.local_number > gpus:
            raise DeltapError(
                f"{here.local_number} ranks on this node, but it has {gpus} GPUs; give the model ranks: {gpus} (gpus), "
                "if that divides it, or engine: device_map"
            )
        device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
        torch.cuda.set_device(device)
    backend = "cpu:gloo,cuda:nccl" if device.type == "cuda" else "gloo"
    torch.distributed.init_process_group(backend, timeout=_PATIENCE)
    return device


class ParallelEngine(Engine):
    """An engine whose calls, on the first rank, are done by all ranks; the others `follow`."""

    def __init__(
        self, model: nn.Module, batch_tokens: int, device: torch.device, first_layer: Callable[[], nn.Module]
    ) -> None:
        """``first_layer`` loads the same model with one layer, in one piece."""
        super().__init__(model, batch_tokens, device)
        self._first_layer = first_layer
        self.ranks = torch.distributed.get_world_size()
        self._leads = torch.distributed.get_rank() == 0
        # What is told is no tensor of the device.
        self._words = torch.distributed.new_group(backend="gloo", timeout=_PATIENCE)

    def follow(self) -> None:
        """Return on the first rank. On others compute what it asks for until it is done, then raise
        `ranks.Followed`."""
        if self._leads:
            ranks.at_end(self.close)
            return
        while (call := self._told(None)) is not None:
            name, arguments = call
            try:
                getattr(Engine, name)(self, *arguments)
            except NotFinite:
                pass  # seen by all ranks; the first one says of which question
            except Exception:
                time.sleep(_FIRST_SAYS)
                raise
        torch.distributed.destroy_process_group()
        raise ranks.Followed

    def first_layer(self) -> Engine:
        """Return an engine of the model's first layer alone, which this process holds in one piece."""
        return Engine(self._first_layer(), self.batch_tokens, self.device)

    def close(self) -> None:
        """Let the other ranks end."""
        self._told(None)
        torch.distributed.destroy_process_group()

    def share_prefix(self, ids: Sequence[int]) -> None:
        """As `Engine.share_prefix`, on all ranks."""
        self._told(("share_prefix", (list(ids),)))
        super().share_prefix(ids)

    def generate_and_read(
        self,
        prompts: Sequence[Sequence[int]],
        end_ids: set[int],
        max_new_tokens: int,
        sites: tuple[str, ...],
        places: Places | None,
        progress: Callable[[int], object] = lambda done: None,
    ) -> tuple[list[list[int]], dict[int, Activations]]:
        """As `Engine.generate_and_read`, on all ranks; only the first one reads."""
        arguments = (prompts, end_ids, max_new_tokens, sites)
        self._told(("generate_and_read", (*arguments, None)))
        return super().generate_and_read(*arguments, places, progress)

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
        """As `Engine.forward`, on all ranks."""
        arguments = (sequences, positions, sites, exact_question, last_layer, own_attention)
        self._told(("forward", arguments))
        return super().forward(*arguments, progress)

    def clean_and_knockout(
        self,
        sequences: Sequence[Sequence[int]],
        positions: Sequence[Sequence[int]],
        sites: tuple[str, ...],
        exact_question: Sequence[Sequence[int]],
        progress: Callable[[int], object] = lambda done: None,
    ) -> tuple[Activations, Activations]:
        """As `Engine.clean_and_knockout`, on all ranks."""
        arguments = (sequences, positions, sites, exact_question)
        self._told(("clean_and_knockout", arguments))
        return super().clean_and_knockout(*arguments, progress)

    def passes(
        self,
        sequences: Sequence[Sequence[int]],
        positions: Sequence[Sequence[int]],
        sites: tuple[str, ...],
        cuts: Sequence[Cut | None],
        progress: Callable[[int], object] = lambda done: None,
    ) -> list[Activations]:
        """As `Engine.passes`, on all ranks."""
        arguments = (sequences, positions, sites, cuts)
        self._told(("passes", arguments))
        return super().passes(*arguments, progress)

    def windows(
        self,
        sequences: Sequence[Sequence[int]],
        positions: Sequence[Sequence[int]],
        sites: tuple[str, ...],
        keys: Sequence[Sequence[int]],
        windows: Sequence[Window],
        progress: Callable[[int], object] = lambda done: None,
    ) -> Activations:
        """As `Engine.windows`, on all ranks."""
        arguments = (sequences, positions, sites, keys, windows)
        self._told(("windows", arguments))
        return super().windows(*arguments, progress)

    def attention(
        self,
        sequences: Sequence[Sequence[int]],
        first_queries: Sequence[int],
        progress: Callable[[int], object] = lambda done: None,
    ) -> list[torch.Tensor]:
        """As `Engine.attention`, on all ranks, each of which has as many heads."""
        self._told(("attention", (sequences, first_queries)))
        return super().attention(sequences, first_queries, progress)

    def _told(self, call: Any) -> Any:
        """Return the call that the first rank tells; on it, ``call``."""
        box = [call]
        torch.distributed.broadcast_object_list(box, src=0, group=self._words)
        return box[0]

    def _agreed(self, tokens: torch.Tensor) -> torch.Tensor:
        torch.distributed.broadcast(tokens, src=0)
        return tokens

    def _over_ranks(self, mean: torch.Tensor) -> torch.Tensor:
        torch.distributed.all_reduce(mean)
        return mean / self.ranks

    def _collected(
        self, activations: dict[tuple[str, int], torch.Tensor], sites: tuple[str, ...], number: int | None = None
    ) -> Activations:
        return super()._collected(activations, sites, number) if self._leads else {}
