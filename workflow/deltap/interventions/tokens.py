"""Which tokens are cut instead of the exact question tokens E_Q, or of them.

Pure functions of a sample's own tokens and a key, such as (seed, question, draw), that seeds them: other samples,
batches, shards or a larger sample move nothing.
"""

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass

NEAREST = 3
"""Tokens to fill up with are drawn from so many times as many, the nearest to E_Q."""


@dataclass(frozen=True)
class PromptTokens:
    """Positions in a prompt, whose position 0 is never cut."""

    prompt: int
    """How many tokens the prompt has."""
    question: Sequence[int]
    """The question's tokens, E_Q among them."""
    exact: Sequence[int]
    """E_Q."""

    @property
    def others(self) -> list[int]:
        """The question's tokens outside E_Q."""
        return sorted({*self.question} - {*self.exact, 0})

    @property
    def outside(self) -> list[int]:
        """The template's and examples' tokens, those at the most similar distance to the prompt's end first.

        The distance is compared with that of E_Q, the mean over its tokens; of equals the earlier one comes first.
        """
        middle = sum(self.exact) / len(self.exact)
        rest = {*range(1, self.prompt)} - {*self.question, *self.exact}
        return sorted(rest, key=lambda position: (abs(position - middle), position))


@dataclass(frozen=True)
class Drawn:
    """Tokens to be cut."""

    tokens: list[int]
    """Positions, in their order."""
    from_question: int
    """How many of them are the question's."""


def random_tokens(place: PromptTokens, *key: object) -> Drawn:
    """Draw as many tokens as E_Q has, outside of it, without replacement.

    They are of the question. Where that has too few, all of them are taken, and the missing ones are drawn from the
    `NEAREST` times as many tokens of template and examples at the most similar distance to the prompt's end. A prompt
    that has not so many tokens gives what it has.
    """
    source, wanted, others = _random(key), len(place.exact), place.others
    chosen = source.sample(others, min(wanted, len(others)))
    missing = wanted - len(chosen)
    candidates = place.outside[: NEAREST * missing]
    filled = source.sample(candidates, min(missing, len(candidates)))
    return Drawn(sorted(chosen + filled), len(chosen))


def random_mass(place: PromptTokens, mass: Callable[[Sequence[int]], float], *key: object) -> Drawn:
    """Draw tokens outside E_Q until cutting them removes as much attention as cutting E_Q does, as nearly as can be.

    ``mass`` says how much attention cutting some tokens removes. Tokens are added in a seeded order: the question's,
    then those of template and examples, drawn among the nearest `NEAREST` times as many as E_Q has, then among the next
    so many, and so on. Of the beginnings of this order, up to the first that removes enough, the nearest is taken; it
    has one token at least, where there is one.
    """
    source, target = _random(key), mass(place.exact)
    others, outside, size = place.others, place.outside, NEAREST * len(place.exact)
    order = source.sample(others, len(others))
    for start in range(0, len(outside), size):
        block = outside[start : start + size]
        order += source.sample(block, len(block))
    best, nearest = 0, float("inf")
    for count in range(1, len(order) + 1):
        removed = mass(order[:count])
        if abs(removed - target) < nearest:
            best, nearest = count, abs(removed - target)
        if removed >= target:
            break
    return Drawn(sorted(order[:best]), min(best, len(others)))


def dose(place: PromptTokens, number: int, *key: object) -> Drawn:
    """Draw ``number`` tokens of E_Q, all of them where it has fewer; with one key, more tokens contain the fewer."""
    exact = sorted(place.exact)
    tokens = _random(key).sample(exact, len(exact))[:number]
    return Drawn(sorted(tokens), len({*tokens} & {*place.question}))


def _random(key: tuple[object, ...]) -> random.Random:
    return random.Random("/".join(map(str, key)))
