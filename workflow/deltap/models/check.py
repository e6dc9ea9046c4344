"""The check that every model has to pass when it is loaded: does knockout do here what the method needs?"""

import torch

from deltap.errors import DeltapError
from deltap.exact.spans import Span, tokens_of_span
from deltap.models.engine import Engine
from deltap.models.knockout import Cut
from deltap.models.parallel import ParallelEngine
from deltap.models.prompts import Prompter
from deltap.models.trace import Activations
from deltap.models.windows import Window

_QUESTION, _CUT = "What is the name of the capital city of the country Argentina?", "Argentina"
# Largest difference allowed, as a share of the activation's length (Euclidean norm): rounding in the model's dtype,
# which adds up from layer to layer. Measured with a real model of 30 layers: 0.05 in bfloat16, 0.01 in float16. What
# the cut itself changes is 0.5 to 1.2 in the layer where it changes most.
_TOLERANCE = {torch.float32: 2e-3, torch.bfloat16: 0.2, torch.float16: 0.04}


def check_model(engine: Engine, prompter: Prompter, sites: tuple[str, ...]) -> None:
    """Refuse a model (DeltapError) for which the two passes would not give what one pass per layer gives.

    On one prompt, of which "Argentina" is cut:

    1. the attention used here gives what the model's own gives;
    2. a mask that cuts nothing gives the clean activations; a padded batch from the shared prefix gives those of one
       sequence, and so does what comes up while answers are generated;
    3. positions before the first cut token do not change, and later ones do;
    4. the activations of a layer k in the middle are those of a pass that cuts in layers 0 … k only.

    5. where several ranks hold the model, the first layer is the one that a process alone computes: a split that goes
       wrong (a norm over all heads, a fused projection) does so in every layer alike, and not always with an error.

    That the edges are cut in every layer is checked in every pass, by the engine.
    """
    ids, cut = _prompt(prompter)
    last = len(ids) - 1

    def forward(**keywords: object) -> Activations:
        return engine.forward([ids], [[cut[0] - 1, last]], sites, **keywords)  # type: ignore[arg-type]

    engine.share_prefix([])
    try:
        clean = forward()
    except RuntimeError as error:
        if not isinstance(engine, ParallelEngine):
            raise
        raise DeltapError(
            f"{type(engine.model).__name__}: the ranks' parts of the model do not fit together ({error}); use another "
            "engine, such as accelerate or device_map"
        ) from error
    nothing = forward(exact_question=[[]])
    knockout = forward(exact_question=[cut])
    middle = engine.layers // 2
    plain = forward(exact_question=[cut], last_layer=middle)
    own = forward(own_attention=True)

    engine.share_prefix(prompter.prefix_ids)
    two = [ids, [*ids, *ids[-3:]]]
    batch_clean, batch = engine.clean_and_knockout(two, [[cut[0] - 1, last]] * 2, sites, [cut, cut])
    places = [[len(prompt) - 1, len(prompt)] for prompt in two]  # the last of the prompt, the first of the answer
    said, came_up = engine.generate_and_read(two, {ids[0]}, 3, sites, lambda index, answer: places[index])
    again = {index: engine.forward([two[index] + said[index]], [places[index]], sites) for index in came_up}

    whole = knockout
    if isinstance(engine, ParallelEngine):
        whole = engine.first_layer().forward([ids], [[cut[0] - 1, last]], sites, exact_question=[cut])

    for site in sites:

        def refuse(what: str, one: torch.Tensor, other: torch.Tensor, site: str = site, first: int = 0) -> None:
            if failed := _difference(one, other):
                layer, difference = failed
                raise DeltapError(
                    f"{type(engine.model).__name__}: the load check failed at site '{site}', layer {first + layer}: "
                    f"{what} ({difference}); this model cannot be measured by knockout"
                )

        refuse("its own attention computes something else than plain attention", clean[site], own[site])
        refuse("a mask that cuts nothing changes activations", clean[site], nothing[site])
        refuse("cutting changes positions before the cut", clean[site][:, :, :1], knockout[site][:, :, :1])
        refuse(
            f"cutting in layers 0 … {middle} and cutting everywhere differ at layer {middle}",
            knockout[site][middle : middle + 1],
            plain[site][middle : middle + 1],
            first=middle,
        )
        refuse("the ranks together compute something else than one process", whole[site][:1], knockout[site][:1])
        for alone, together in ((clean, batch_clean), (knockout, batch)):
            refuse(
                "a padded batch from the shared prefix differs from one sequence", alone[site], together[site][:, :1]
            )
        for index, read in came_up.items():
            refuse("what comes up with an answer differs from a pass", again[index][site], read[site])
    engine.kernels.clear()  # real batches have other shapes
    if any(torch.equal(clean[site][:, :, 1], knockout[site][:, :, 1]) for site in sites):
        raise DeltapError(
            f"{type(engine.model).__name__}: the load check failed: cutting attention changes nothing; this model "
            "cannot be measured by knockout"
        )


def check_windows(engine: Engine, prompter: Prompter, sites: tuple[str, ...]) -> None:
    """Refuse a model (DeltapError) that cannot be restarted in the middle.

    On one prompt, of which "Argentina" is cut in the layers of the upper half alone, restarted from the clean hidden
    states, the last layer has to be that of a whole pass with the same cut.
    """
    ids, cut = _prompt(prompter)
    places, last = [[cut[0] - 1, len(ids) - 1]], engine.layers - 1
    engine.share_prefix(prompter.prefix_ids)
    window = Window(max(1, engine.layers // 2), last, last)
    restarted = engine.windows([ids], places, sites, [cut], [window])
    (plain,) = engine.passes([ids], places, sites, [window.cut(Cut([cut]))])
    engine.kernels.clear()
    for site in sites:
        if failed := _difference(plain[site][last:], restarted[site]):
            raise DeltapError(
                f"{type(engine.model).__name__}: a pass that is restarted from the clean hidden states of layer "
                f"{window.first - 1} differs from a whole one at site '{site}', layer {last} ({failed[1]}): its layers "
                "hand on more than these. Set 'windows: null' and 'heads: null' in controls.interventions"
            )


def _prompt(prompter: Prompter) -> tuple[list[int], list[int]]:
    """Return the ids of the prompt that is checked, and the positions that are cut."""
    prompt = prompter(_QUESTION)
    start = prompt.question_start + _QUESTION.index(_CUT)
    return prompt.ids, tokens_of_span(Span(start, start + len(_CUT)), prompt.offsets)


def _difference(one: torch.Tensor, other: torch.Tensor) -> tuple[int, str] | None:
    """Return the first layer in which activations differ by more than rounding, and by how much; None for none."""
    allowed = _TOLERANCE[one.dtype]
    one, other = one.float(), other.float()
    length = one.norm(dim=-1).clamp(min=torch.finfo(torch.float32).tiny)
    worst = ((one - other).norm(dim=-1) / length).flatten(1).amax(dim=1)
    bad = ~(worst <= allowed)  # also for NaN
    if not bad.any():
        return None
    layer = int(bad.nonzero()[0])
    return layer, f"difference {worst[layer]:.3g} of the activation's length, allowed {allowed:.3g}"
