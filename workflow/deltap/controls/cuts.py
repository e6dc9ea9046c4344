"""What other cuts show: where the flow happens (windows, heads), how much it takes (dose), how alike the cuts are."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from deltap.controls.compare import Bootstrap, deeper_half
from deltap.controls.estimates import Estimates, flips
from deltap.controls.measured import Cut
from deltap.controls.rows import Rows
from deltap.delta_p import delta_p
from deltap.settings import WindowSettings

WINDOW, DOSE, HEADS = "window_", "dose_", "heads"


def windows(estimates: Estimates, settings: WindowSettings, bootstrap: Bootstrap, rows: Rows) -> None:
    """Add mean ΔP of each group (flips at k* under the whole cut), and of all, against the window's first layer.

    Read at k*, or at the window's end; ``at`` is the layer that is read. A window of one layer is a single layer.
    """
    measured = estimates.measured
    for (name, _), cut in measured.interventions.items():
        if name.startswith(WINDOW):
            width, starts = int(name.removeprefix(WINDOW)), range(cut.files.layers)
            read = [
                min(start + width - 1, measured.layers - 1) if settings.read_at == "end" else measured.k_star
                for start in starts
            ]
            places = [{"layer": start, "at": float(layer)} for start, layer in zip(starts, read, strict=True)]
            _in_layers(name, cut, read, places, estimates, bootstrap, rows)


def heads(estimates: Estimates, layers: tuple[int, ...], bootstrap: Bootstrap, rows: Rows) -> None:
    """Add mean ΔP at k* of each group, and of all, under the cut of one head alone.

    ``layer`` is its layer, ``at`` its number.
    """
    cut = estimates.measured.interventions.get((HEADS, 0))
    if cut:
        number = cut.files.layers // len(layers)
        places = [{"layer": layer, "at": float(head)} for layer in layers for head in range(number)]
        _in_layers(HEADS, cut, [estimates.measured.k_star] * len(places), places, estimates, bootstrap, rows)


def _in_layers(
    name: str,
    cut: Cut,
    read: Sequence[int],
    places: Sequence[Mapping[str, Any]],
    estimates: Estimates,
    bootstrap: Bootstrap,
    rows: Rows,
) -> None:
    """Add mean ΔP under cuts in some layers only: each is read at the layer ``read``, and its rows say ``places``."""
    if not (cut.rows >= 0).any():
        return
    measured, clean = estimates.measured, estimates.found.clean[read]
    said = [measured.probes[layer].probability(cut.at(place)) for place, layer in enumerate(read)]
    values = delta_p(
        clean, np.stack(said).astype(np.float32), estimates.refers_to_truthful(estimates.found.clean)[read]
    )
    q = estimates.plain["reference"][0]
    for group, member in (("q_anchored", q), ("a_anchored", ~q), (None, np.ones_like(q))):
        curve = bootstrap.mean(values[None], np.broadcast_to(member, values.shape)[None])
        rows.places(name, "delta_p", curve, places, grouping="reference", group=group)


def dose(estimates: Estimates, bootstrap: Bootstrap, rows: Rows) -> None:
    """Add flip rate and mean ΔP, over the deeper half of the layers, against the number of blocked tokens (``at``).

    The method's own cut, of all tokens, has no number. Q-Anchored are those that flip under it, layer by layer.
    """
    found, q = estimates.found, estimates.plain["per_layer"]
    cuts = {float(name.removeprefix(DOSE)): cut[0] for (name, _), cut in found.own.cuts.items() if DOSE in name}
    if not cuts:
        return
    everybody = np.ones_like(q)
    for tokens, cut in [*sorted(cuts.items()), (None, found.cut)]:
        values = estimates.delta_p(found.clean, cut)[None]
        flipped = flips(found.clean, cut)[None]
        rows.mean("dose", "flip_rate", bootstrap.share(flipped, np.isfinite(values)), grouping="per_layer", at=tokens)
        rows.mean("dose", "delta_p", bootstrap.mean(values, everybody[None]), at=tokens)
        rows.mean(
            "dose", "delta_p", bootstrap.mean(values, q[None]), grouping="per_layer", group="q_anchored", at=tokens
        )


def alike(estimates: Estimates, bootstrap: Bootstrap, rows: Rows) -> None:
    """Add how alike the random cuts are to that of the exact question, and what is left where they are.

    ``tokens``: blocked tokens; ``exact_tokens``: of the exact question; ``mass`` and ``exact_mass``: removed attention,
    percent; ``equal_mass``: share of samples whose masses differ by at most a tenth; of random tokens ``matched``: the
    share of samples all of whose tokens are the question's own. Then the difference of mean ΔP, over the deeper half of
    the layers, method less control, for the samples that are matched so, and for those of equal mass.
    """
    measured, found = estimates.measured, estimates.found
    if measured.table is None:
        return
    frame = measured.table.to_pandas()
    frame["tokens"] = frame["tokens"].map(len)
    own = estimates.delta_p(found.clean, found.cut)
    for name in ("random_tokens", "random_mass"):
        table, cuts = frame[frame["intervention"] == name], found.under(name)
        if not cuts or table.empty:
            continue
        for statistic, value in _facts(table).items():
            rows.add(name, statistic, value, n=int(table["question_id"].nunique()))
        values = own - np.stack([estimates.delta_p(found.clean, cut) for cut in cuts])
        alike = {"equal_mass": _equal_mass(table), **({"matched": _matched(table)} if name == "random_tokens" else {})}
        for group, chosen in alike.items():
            # By draw and sample.
            flat = pd.Series(
                chosen.to_numpy(bool), pd.MultiIndex.from_frame(table[["draw", "question_id"]].astype(str))
            )
            wanted = pd.MultiIndex.from_product([map(str, range(len(cuts))), measured.question_ids.astype(str)])
            member = flat.reindex(wanted, fill_value=False).to_numpy().reshape(len(cuts), -1)
            of_layers = np.broadcast_to(member[:, None], values.shape)
            rows.mean(name, "delta_p_difference", bootstrap.mean(values, of_layers), tested=True, group=group)


def logit_change(estimates: Estimates, rows: Rows) -> None:
    """Add how far each cut moves the probe: the standard deviation over samples of the change of the logit.

    Mean over the deeper half of the layers, and over the draws. A control that moves it less than the method's cut does
    is a weaker disturbance, whatever it is of.
    """
    found = estimates.found.logit_change
    for name in sorted({name for name, _ in found}):
        draws = np.stack([change for (other, _), change in found.items() if other == name])
        deep = draws[:, deeper_half(draws.shape[1])]
        rows.add(name, "logit_change", float(np.mean(deep)), n=estimates.measured.samples)


def _matched(table: pd.DataFrame) -> pd.Series:
    return table["from_question"] == table["exact_question_tokens"]


def _equal_mass(table: pd.DataFrame) -> pd.Series:
    return abs(table["mass"] / table["exact_mass"] - 1) <= 0.1


def _facts(table: pd.DataFrame) -> dict[str, float]:
    facts = {
        "tokens": table["tokens"].mean(),
        "exact_tokens": table["exact_question_tokens"].mean(),
        "mass": 100 * table["mass"].mean(),
        "exact_mass": 100 * table["exact_mass"].mean(),
        "equal_mass": 100 * _equal_mass(table).mean(),
    }
    if (table["intervention"] == "random_tokens").all():
        facts["matched"] = 100 * _matched(table).mean()
    return facts
