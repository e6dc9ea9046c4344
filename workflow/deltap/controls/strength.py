"""How far the depth of the curve follows the strength and the calibration of the probe."""

import numpy as np

from deltap.controls.compare import Bootstrap
from deltap.controls.estimates import Estimates, flips
from deltap.controls.probabilities import tempered
from deltap.controls.rows import Rows
from deltap.delta_p import delta_p


def strength(estimates: Estimates, values: tuple[float, ...], bootstrap: Bootstrap, rows: Rows) -> None:
    """Add flip rate, mean ΔP of Q-Anchored (own flips, layer by layer) and validation AUROC, over the deeper half.

    ``at`` is the probe's regularisation. Once by the probes as they are, once with their logits divided by the
    temperature of the least validation log loss (control ``strength calibrated``). A level that moves with the strength
    is not a property of the model.
    """
    found = estimates.found.strengths
    deep = slice(found.clean.shape[1] // 2, None)
    for index, value in enumerate(values):
        clean, cut = found.clean[index], found.cut[index]
        q = flips(clean, cut)[None]
        rows.mean("strength", "flip_rate", bootstrap.share(q), grouping="per_layer", at=value)
        rows.add("strength", "auroc", float(np.mean(found.auroc[index, deep])), at=value)
        rows.add("strength", "temperature", float(np.mean(found.temperature[index, deep])), at=value)
        calibrated = tempered(clean, found.temperature[index]), tempered(cut, found.temperature[index])
        for control, (before, after) in (("strength", (clean, cut)), ("strength calibrated", calibrated)):
            change = delta_p(before, after, estimates.refers_to_truthful(clean))[None]
            rows.mean(control, "delta_p", bootstrap.mean(change, q), grouping="per_layer", group="q_anchored", at=value)
