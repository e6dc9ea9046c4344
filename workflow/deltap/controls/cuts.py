"""What other cuts show: where the flow happens (windows, heads), how much it takes (dose), how alike the cuts are."""

import numpy as np
import pandas as pd

from deltap.controls.compare import Bootstrap
from deltap.controls.estimates import Estimates, flips
from deltap.controls.measured import Cut, Measured
from deltap.controls.rows import Rows
from deltap.delta_p import delta_p
from deltap.settings import WindowSettings

WINDOW, DOSE, HEADS = "window_", "dose_", "heads"


def windows(estimates: Estimates, settings: WindowSettings, bootstrap: Bootstrap, rows: Rows) -> None:
    """Add mean ΔP of each group (flips at k* under the whole cut) against the window's first layer.

    Read at k*, or at the window's end; ``at`` is the layer that is read. A window of one layer is a single layer.
    """
    measured, clean = estimates.measured, estimates.found.clean
    q = estimates.plain["reference"][0]
    for (name, _), cut in measured.interventions.items():
        if not name.startswith(WINDOW) or not (cut.rows >= 0).any():
            continue
        width, starts = int(name.removeprefix(WINDOW)), np.arange(cut.files.layers)
        read = np.full(len(starts), measured.k_star)
        if settings.read_at == "end":
            read = np.minimum(starts + width - 1, measured.layers - 1)
        probabilities = _at(cut, measured, starts, read)
        values = delta_p(clean[read], probabilities, estimates.refers_to_truthful(clean)[read])
        for group, member in (("q_anchored", q), ("a_anchored", ~q), (None, np.ones_like(q))):
            curve = bootstrap.mean(values[None], np.broadcast_to(member, values.shape)[None])
            (low, high) = curve.interval(rows.level)
            for start in starts:
                rows.add(
                    name,
                    "delta_p",
                    curve.resampled.estimate[start],
                    grouping="reference",
                    group=group,
                    layer=int(start),
                    at=float(read[start]),
                    n=int(curve.n[start]),
                    ci_low=low[start],
                    ci_high=high[start],
                )


def heads(estimates: Estimates, layers: tuple[int, ...], bootstrap: Bootstrap, rows: Rows) -> None:
    """Add mean ΔP at k* of each group under the cut of one head alone; ``layer`` is its layer, ``at`` its number."""
    measured, clean = estimates.measured, estimates.found.clean
    cut = measured.interventions.get((HEADS, 0))
    if cut is None or not (cut.rows >= 0).any():
        return
    number = cut.files.layers // len(layers)
    places = np.arange(cut.files.layers)
    read = np.full(len(places), measured.k_star)
    values = delta_p(clean[read], _at(cut, measured, places, read), estimates.refers_to_truthful(clean)[read])
    q = estimates.plain["reference"][0]
    for group, member in (("q_anchored", q), ("a_anchored", ~q)):
        curve = bootstrap.mean(values[None], np.broadcast_to(member, values.shape)[None])
        low, high = curve.interval(rows.level)
        for place in places:
            rows.add(
                HEADS,
                "delta_p",
                curve.resampled.estimate[place],
                grouping="reference",
                group=group,
                layer=layers[place // number],
                at=float(place % number),
                n=int(curve.n[place]),
                ci_low=low[place],
                ci_high=high[place],
            )


def _at(cut: Cut, measured: Measured, places: np.ndarray, read: np.ndarray) -> np.ndarray:
    """Return probabilities, shape (places, samples): of each place of a file by the probe of the layer that is read."""
    found = [cut.probability(measured.probes[layer], place) for place, layer in zip(places, read, strict=True)]
    return np.stack(found).astype(np.float32)


def dose(estimates: Estimates, bootstrap: Bootstrap, rows: Rows) -> None:
    """Add flip rate and mean ΔP, over the deeper half of the layers, against the number of blocked tokens (``at``).

    The method's own cut, of all tokens, has no number. Q-Anchored are those that flip under it, layer by layer.
    """
    found, q = estimates.found, estimates.plain["per_layer"]
    cuts = {float(name.removeprefix(DOSE)): cut for (name, _), cut in found.interventions.items() if DOSE in name}
    if not cuts:
        return
    everybody = np.ones_like(q)
    for tokens, cut in [*sorted(cuts.items()), (None, found.cut)]:
        values = delta_p(found.clean, cut, estimates.refers_to_truthful(found.clean))[None]
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
    own = delta_p(found.clean, found.cut, estimates.refers_to_truthful(found.clean))
    for name in ("random_tokens", "random_mass"):
        drawn = {draw: cut for (known, draw), cut in found.interventions.items() if known == name}
        table = frame[frame["intervention"] == name]
        if not drawn or table.empty:
            continue
        for statistic, value in _facts(table).items():
            rows.add(name, statistic, value, n=int(table["question_id"].nunique()))
        cut = np.stack([drawn[draw] for draw in sorted(drawn)])
        values = own - delta_p(found.clean, cut, estimates.refers_to_truthful(found.clean))
        places = pd.Index(measured.question_ids)
        alike = {"equal_mass": _equal_mass(table), **({"matched": _matched(table)} if name == "random_tokens" else {})}
        for group, chosen in alike.items():
            by_draw = [
                chosen[table["draw"] == draw].set_axis(table.loc[table["draw"] == draw, "question_id"]).reindex(places)
                for draw in sorted(drawn)
            ]
            member = np.stack([each.fillna(False).to_numpy(bool) for each in by_draw])
            of_layers = np.broadcast_to(member[:, None], values.shape)
            rows.mean(name, "delta_p_difference", bootstrap.mean(values, of_layers), tested=True, group=group)


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
