"""How much attention a cut removes."""

from collections.abc import Sequence

import numpy as np


class Attention:
    """The attention of one sample's clean pass, averaged over heads and layers."""

    def __init__(self, weights: np.ndarray, first: int) -> None:
        """``weights``: of shape (queries, keys); row r is the query at position ``first`` + r."""
        self._weights = weights
        self._queries = np.arange(first, first + len(weights))

    def removed(self, keys: Sequence[int], first_query: int = 0) -> float:
        """Return how much of its attention a token of the sample loses, on average, by cutting ``keys``, 0 … 1.

        With A[i, j] the weight with which query i attends to key j, and S the keys: the sum of A[i, j] over the j in S
        and the queries i that lose them (those from ``first_query`` on that are not in S), divided by the number of
        *all* queries, so that the masses of different S are shares of one and the same whole. Queries before ``first``
        are not among them, which are those of template and examples: the clean pass does not compute them for each
        sample.
        """
        keys = list(keys)
        losing = (self._queries >= first_query) & ~np.isin(self._queries, keys)
        # Causal attention has no weight on keys behind the query.
        return float(self._weights[losing][:, keys].sum() / len(self._queries))
