"""The check that every model has to pass when it is loaded: does knockout do here what the method needs?"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from deltap.errors import DeltapError
from deltap.exact.spans import Span, tokens_of_span
from deltap.models.engine import Activations, Engine
from deltap.models.prompts import Prompter

_QUESTION, _CUT = "What is the name of the capital city of the country Argentina?", "Argentina"
# Largest difference allowed, relative to the largest activation of the site and layer: rounding in the model's dtype.
_TOLERANCE = {torch.float32: 2e-5, torch.bfloat16: 5e-2, torch.float16: 5e-3}


def check_model(engine: Engine, prompter: Prompter, sites: tuple[str, ...]) -> None:
    """Refuse a model (DeltapError) for which the two passes would not give what one pass per layer gives.

    On one prompt, of which "Argentina" is cut:

    1. the attention used here gives what the model's own gives;
    2. a mask that cuts nothing gives the clean activations, alone and in a padded batch from the shared prefix;
    3. positions before the first cut token do not change, and later ones do;
    4. the activations of a layer k in the middle are those of a pass that cuts in layers 0 … k only.

    That the edges are cut in every layer is checked in every pass, by the engine.
    """
    prompt = prompter(_QUESTION)
    start = prompt.question_start + _QUESTION.index(_CUT)
    cut = tokens_of_span(Span(start, start + len(_CUT)), prompt.offsets)
    ids, last = prompt.ids, len(prompt.ids) - 1

    def forward(**keywords: object) -> Activations:
        return engine.forward([ids], [[cut[0] - 1, last]], sites, **keywords)  # type: ignore[arg-type]

    engine.share_prefix([])
    clean = forward()
    nothing = forward(exact_question=[[]])
    knockout = forward(exact_question=[cut])
    middle = engine.layers // 2
    plain = forward(exact_question=[cut], last_layer=middle)
    with _own_attention(engine.model):
        own = forward()

    engine.share_prefix(prompter.prefix_ids)
    longer = [*ids, *ids[-3:]]
    batch = engine.forward([ids, longer], [[cut[0] - 1, last]] * 2, sites, exact_question=[cut, cut])
    batch = {site: states[:, :1] for site, states in batch.items()}

    for site in sites:
        scale = clean[site].float().abs().amax(dim=(1, 2, 3))
        allowed = _TOLERANCE[clean[site].dtype] * scale

        def refuse(
            what: str, difference: torch.Tensor, site: str = site, allowed: torch.Tensor = allowed, first: int = 0
        ) -> None:
            worst = difference.float().abs().flatten(1).amax(dim=1)
            bad = ~(worst <= allowed[first : first + len(worst)])  # also for NaN
            if bad.any():
                layer = first + int(bad.nonzero()[0])
                raise DeltapError(
                    f"{type(engine.model).__name__}: the load check failed at site '{site}', layer {layer}: {what} "
                    f"(difference {worst[layer - first]:.3g}, allowed {allowed[layer]:.3g}); this model cannot be "
                    "measured by knockout"
                )

        refuse("its own attention computes something else than plain attention", clean[site] - own[site])
        refuse("a mask that cuts nothing changes activations", clean[site] - nothing[site])
        refuse("cutting changes positions before the cut", (clean[site] - knockout[site])[:, :, 0])
        refuse(
            f"cutting in layers 0 … {middle} and cutting everywhere differ at layer {middle}",
            (knockout[site] - plain[site])[middle : middle + 1],
            first=middle,
        )
        refuse("a padded batch from the shared prefix differs from one sequence", knockout[site] - batch[site])
    if any(torch.equal(clean[site][:, :, 1], knockout[site][:, :, 1]) for site in sites):
        raise DeltapError(
            f"{type(engine.model).__name__}: the load check failed: cutting attention changes nothing; this model "
            "cannot be measured by knockout"
        )


@contextmanager
def _own_attention(model: Any) -> Iterator[None]:
    """Let the model use the attention that its authors wrote (sinks, caps and all) inside the block."""
    used = model.config._attn_implementation
    model.set_attn_implementation("eager")
    try:
        yield
    finally:
        model.set_attn_implementation(used)
