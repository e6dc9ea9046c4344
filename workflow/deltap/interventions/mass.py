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
        """Return the share of a later token's attention that cutting ``keys`` removes, 0 … 1.

        With A[i, j] the weight with which query i attends to key j, and S the keys: the mean, over the queries i from
        ``first_query`` on that are not in S and stand behind one of S, of the sum of A[i, j] over the j in S. Queries
        before ``first`` do not count, which are those of template and examples: the clean pass does not compute them
        for each sample. 0 where there is no such query.
        """
        keys = list(keys)
        if not keys:
            return 0.0
        later = (self._queries > min(keys)) & (self._queries >= first_query) & ~np.isin(self._queries, keys)
        # Causal attention has no weight on keys behind the query.
        return float(self._weights[later][:, keys].sum(axis=1).mean()) if later.any() else 0.0
