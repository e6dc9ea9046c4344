"""The check that every model has to pass when it is loaded: does knockout do here what the method needs?"""

import torch

from deltap.errors import DeltapError
from deltap.exact.spans import Span, tokens_of_span
from deltap.models.engine import Activations, Engine
from deltap.models.prompts import Prompter

_QUESTION, _CUT = "What is the name of the capital city of the country Argentina?", "Argentina"
_SITES = ("attn", "mlp", "resid")
# Largest difference allowed, relative to the largest activation of the site: rounding in the model's dtype.
_TOLERANCE = {torch.float32: 2e-5, torch.bfloat16: 5e-2, torch.float16: 5e-3}


def check_model(engine: Engine, prompter: Prompter) -> None:
    """Refuse a model (DeltapError) for which the two passes would not give what one pass per layer gives.

    On one prompt, of which "Argentina" is cut:

    1. a mask that cuts nothing gives the clean activations, alone and in a padded batch from the shared prefix;
    2. positions before the first cut token do not change, and later ones do;
    3. the activations of a layer k in the middle are those of a pass that cuts in layers 0 … k only.
    """
    prompt = prompter(_QUESTION)
    start = prompt.question_start + _QUESTION.index(_CUT)
    cut = tokens_of_span(Span(start, start + len(_CUT)), prompt.offsets)
    ids, last = prompt.ids, len(prompt.ids) - 1

    def forward(**keywords: object) -> Activations:
        return engine.forward([ids], [[cut[0] - 1, last]], _SITES, **keywords)  # type: ignore[arg-type]

    engine.share_prefix([])
    clean = forward()
    nothing = forward(exact_question=[[]])
    knockout = forward(exact_question=[cut])
    middle = engine.layers // 2
    plain = forward(exact_question=[cut], last_layer=middle)

    engine.share_prefix(prompter.prefix_ids)
    longer = [*ids, *ids[-3:]]
    batch = engine.forward([ids, longer], [[cut[0] - 1, last]] * 2, _SITES, exact_question=[cut, cut])
    batch = {site: states[:, :1] for site, states in batch.items()}

    for site in _SITES:
        scale = float(clean[site].abs().max())
        allowed = _TOLERANCE[clean[site].dtype] * scale

        def refuse(what: str, difference: torch.Tensor, site: str = site, allowed: float = allowed) -> None:
            worst = float(difference.abs().max())
            if not worst <= allowed:  # also for NaN
                raise DeltapError(
                    f"{type(engine.model).__name__}: the load check failed at site '{site}': {what} "
                    f"(difference {worst:.3g}, allowed {allowed:.3g}); this model cannot be measured by knockout"
                )

        refuse("a mask that cuts nothing changes activations", clean[site] - nothing[site])
        refuse("cutting changes positions before the cut", (clean[site] - knockout[site])[:, :, 0])
        refuse(
            f"cutting in layers 0 … {middle} and cutting everywhere differ at layer {middle}",
            (knockout[site] - plain[site])[middle],
        )
        refuse("a padded batch from the shared prefix differs from one sequence", knockout[site] - batch[site])
    if torch.equal(clean["attn"][:, :, 1], knockout["attn"][:, :, 1]):
        raise DeltapError(
            f"{type(engine.model).__name__}: the load check failed: cutting attention changes nothing, so this "
            "architecture does not use transformers' attention interface"
        )
