"""Dividing samples into batches by a budget of tokens."""

from collections.abc import Callable, Iterator, Sequence

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
