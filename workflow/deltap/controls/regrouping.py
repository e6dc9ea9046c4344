"""Regrouping: would a sample have the same anchor at another layer, site, position, or by another probe?"""

import numpy as np
import pyarrow as pa

from deltap.controls.bimodality import kappa
from deltap.controls.compare import deeper_half
from deltap.controls.estimates import Estimates, flips
from deltap.controls.rows import Rows

_NUMBER = 4  # of this control's random numbers


def verdicts(estimates: Estimates) -> np.ndarray:
    """Return who flips by the probes, then by each refit, over the deeper half of the layers.

    Boolean, shape (1 + refits, layers, samples).
    """
    found = estimates.found
    every = [flips(found.clean, found.cut), *map(flips, found.refits.clean, found.refits.cut)]
    return np.stack(every)[:, deeper_half(len(found.clean))]


def majority(flipped: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return each sample's more frequent verdict (True: flips; of equally many, too) and the share that agrees with it.

    ``flipped`` has the shape (…, samples); the share is 0.5 … 1.
    """
    share = flipped.reshape(-1, flipped.shape[-1]).mean(axis=0)
    return share >= 0.5, np.maximum(share, 1 - share)


def by_chance(flipped: np.ndarray, truthful: np.ndarray, random: np.random.Generator) -> np.ndarray:
    """Return the same verdicts dealt out anew among the samples of a class, for each layer and probe on its own.

    ``truthful``: what each probe calls a clean sample, of the same shape. As many of each class flip as before, but
    nobody more often than others of it: the agreement that is left is the one that class and flip rates alone give.
    Nobody is stable who is not in most layers, and where few flip all others are "stable" by chance.
    """
    dealt = np.empty_like(flipped)
    for place in np.ndindex(flipped.shape[:-1]):
        for inside in (truthful[place], ~truthful[place]):
            dealt[place][inside] = random.permutation(flipped[place][inside])
    return dealt


def regrouping(estimates: Estimates, anchors: pa.Table, share: float, rows: Rows) -> np.ndarray:
    """Add how stable anchors are; return who is stable: at least ``share`` of the layers agree (boolean).

    Layers are those of the deeper half.

    - ``agreement``: mean share (percent) of a sample's verdicts that agree with its majority, over layers (group
      ``layers``), and over refits at each of them (``refits``);
    - ``stable``: share of samples that are, and ``stable q_anchored``: that are, and are Q-Anchored (percent);
    - of each its value ``by chance``;
    - ``kappa``: agreement of the reference anchors with those of another site and position, and of the groupings with
      each other, mean over the deeper half without k* itself; beyond what flip rates give, but not beyond class: two
      sites that only share which class flips agree by more than 0.
    """
    flipped = verdicts(estimates)
    found = estimates.found
    says_truthful = np.stack([found.clean, *found.refits.clean])[:, deeper_half(len(found.clean))] >= 0.5
    shuffled = by_chance(flipped, says_truthful, np.random.default_rng([estimates.settings.seed, _NUMBER]))
    n = flipped.shape[-1]
    if not n:
        return np.zeros(0, dtype=bool)
    for chance, every in (("", flipped), (" by chance", shuffled)):
        parts = {"layers": [every[0]]}
        if len(every) > 1:
            parts["refits"] = list(every[1:].swapaxes(0, 1))
        for group, items in parts.items():
            mean = np.mean([majority(each)[1].mean() for each in items])
            rows.add("regrouping", f"agreement{chance}", 100 * float(mean), group=group, n=n)
        q, agreeing = majority(every[0])
        stable = agreeing >= share
        rows.add("regrouping", f"stable{chance}", 100 * float(stable.mean()), group="layers", n=n)
        rows.add("regrouping", f"stable q_anchored{chance}", 100 * float((stable & q).mean()), group="layers", n=n)
    reference = estimates.plain["reference"][0]
    first = deeper_half(len(found.clean)).start
    others = [layer for index, layer in enumerate(flipped[0], first) if index != estimates.measured.k_star]
    kappas = [kappa(layer, reference) for layer in others]
    there = [value for value in kappas if value is not None]
    rows.add("regrouping", "kappa", float(np.mean(there)) if there else None, group="per_layer and reference", n=n)
    for (site, position), other in _elsewhere(estimates, anchors).items():
        rows.add("regrouping", "kappa", kappa(other, reference), group=f"{site}, {position}", n=n)
    return majority(flipped[0])[1] >= share


def _elsewhere(estimates: Estimates, anchors: pa.Table) -> dict[tuple[str, str], np.ndarray]:
    """Return who is Q-Anchored at k* of the other sites and positions, in the order of the samples."""
    here = estimates.settings.site, estimates.settings.position
    frame = anchors.select(["site", "position", "layer", "question_id", "anchor_reference"]).to_pandas()
    found = {}
    for key, part in frame[frame["layer"] == 0].groupby(["site", "position"], observed=True):
        if key != here:
            of_sample = part.set_index("question_id")["anchor_reference"].astype(str)
            found[key] = (of_sample.reindex(estimates.measured.question_ids) == "q_anchored").to_numpy()
    return found
