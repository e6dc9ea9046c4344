"""Batches: samples that are computed together, and how samples are divided into them by a budget of tokens."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import torch

from deltap.models.knockout import Cut, Edges

Divide = Callable[[Sequence[int], int], Iterator[list[int]]]
"""Yields batches of indices of items of so many tokens, within a budget of tokens."""


def by_length(lengths: Sequence[int], batch_tokens: int) -> Iterator[list[int]]:
    """Yield batches of indices of similar lengths: padded to its longest, none exceeds ``batch_tokens``.

    A single sample that is longer than the budget is a batch of its own. Ties keep their order, so the division is a
    function of the lengths alone.
    """
    batch: list[int] = []
    for index in sorted(range(len(lengths)), key=lengths.__getitem__, reverse=True):
        if batch and lengths[batch[0]] * (len(batch) + 1) > batch_tokens:
            yield batch
            batch = []
        batch.append(index)
    if batch:
        yield batch


def of_equal_length(lengths: Sequence[int], batch_tokens: int) -> Iterator[list[int]]:
    """Yield batches of indices of one length each, so that nothing needs padding; budget as in `by_length`."""
    for length in sorted(set(lengths), reverse=True):
        indices = [index for index, other in enumerate(lengths) if other == length]
        size = max(1, batch_tokens // max(1, length))
        for start in range(0, len(indices), size):
            yield indices[start : start + size]


@dataclass(frozen=True)
class Batch:
    """Sequences that are computed together; the first ``shared`` tokens of each are the shared prefix."""

    sequences: list[Sequence[int]]
    positions: list[Sequence[int]]
    cuts: list[Cut | None]
    """For each pass what is cut of these sequences; None: nothing."""
    shared: int

    @property
    def common(self) -> int:
        """Number of tokens that come out alike in every pass, and at which nothing is read."""
        read = [position for row in self.positions for position in row]
        cut = [position for each in self.cuts if each is not None for row in each.keys for position in row]
        return min([*read, *cut], default=self.shared)

    def ids(self, device: torch.device) -> torch.Tensor:
        """Return the token ids of whole sequences, shape (batch, longest).

        Padding stands at the right, where under causal attention no token that is read can see it.
        """
        ids = torch.zeros(len(self.sequences), max(map(len, self.sequences)), dtype=torch.long)
        for row, sequence in enumerate(self.sequences):
            ids[row, : len(sequence)] = torch.tensor(sequence)
        return ids.to(device)

    def edges(self, cut: Cut, heads: int, device: torch.device) -> Edges:
        """Return the edges of ``cut`` in this batch, of a model with so many ``heads`` in a layer."""
        keys = torch.zeros(len(self.sequences), max(map(len, self.sequences)), dtype=torch.bool)
        for row, positions in enumerate(cut.keys):
            keys[row, list(positions)] = True
        queries = None
        if cut.first_query is not None:
            queries = (torch.arange(keys.shape[1]) >= torch.tensor(cut.first_query)[:, None]).to(device)
        return Edges(keys.to(device), queries, cut.first_layer, cut.last_layer, cut.head, heads)
