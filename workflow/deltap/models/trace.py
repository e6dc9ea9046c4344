"""Activations that come up while answers are generated, so that the tokens need not be computed once more."""

from collections.abc import Mapping, Sequence

import torch

Activations = dict[str, torch.Tensor]
"""For each site a tensor of shape (layers, samples, positions, hidden), on the host, in the model's dtype."""


class Trace:
    """The activations of each step of generation: first of the prompts' last tokens, then of one token after the other.

    Nothing is copied to the host before it is known which of them are wanted.
    """

    def __init__(self, sites: tuple[str, ...], layers: int) -> None:
        self.sites = sites
        self._layers = layers
        self._steps: list[tuple[dict[int, int], dict[str, torch.Tensor]]] = []

    def add(self, rows: Sequence[int], states: Mapping[tuple[str, int], torch.Tensor]) -> None:
        """Add a step of the prompts ``rows``: (prompts, 1, hidden) for each site and layer."""
        by_site = {}
        for site in self.sites:
            layers = [states[site, layer][:, 0] for layer in range(self._layers)]
            by_site[site] = torch.stack([layer.to(layers[0].device) for layer in layers])  # may be on several devices
        self._steps.append(({row: place for place, row in enumerate(rows)}, by_site))

    def at(self, row: int, steps: Sequence[int]) -> Activations | None:
        """Return the activations of one prompt at ``steps``, (layers, 1, steps, hidden) for each site.

        None where one of the steps was not computed: the last token of an answer that was cut off never is.
        """
        if not all(0 <= step < len(self._steps) and row in self._steps[step][0] for step in steps):
            return None
        chosen = [self._steps[step] for step in steps]
        return {
            site: torch.stack([states[site][:, places[row]] for places, states in chosen], dim=1)[:, None].to("cpu")
            for site in self.sites
        }
