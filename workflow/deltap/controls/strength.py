"""How far the depth of the curve follows the strength and the calibration of the probe."""

import numpy as np

from deltap.controls.compare import Bootstrap, deeper_half
from deltap.controls.estimates import Estimates, flips
from deltap.controls.rows import Rows


def strength(estimates: Estimates, values: tuple[float, ...], bootstrap: Bootstrap, rows: Rows) -> None:
    """Add flip rate, mean ΔP of Q-Anchored (own flips, layer by layer) and validation AUROC, over the deeper half.

    ``at`` is the probe's regularisation. Once by the probes as they are, once with their logits divided by the
    temperature of the least validation log loss (control ``strength calibrated``). A level that moves with the strength
    is not a property of the model.
    """
    found, calibrated = estimates.found.strengths, estimates.found.strengths_calibrated
    deep = deeper_half(found.clean.shape[1])
    for index, value in enumerate(values):
        q = flips(found.clean[index], found.cut[index])[None]
        rows.mean("strength", "flip_rate", bootstrap.share(q), grouping="per_layer", at=value)
        rows.add("strength", "auroc", float(np.mean(found.auroc[index, deep])), at=value)
        rows.add("strength", "temperature", float(np.mean(found.temperature[index, deep])), at=value)
        for control, said in (("strength", found), ("strength calibrated", calibrated)):
            change = estimates.delta_p(said.clean[index], said.cut[index], found.k_star(index))[None]
            rows.mean(control, "delta_p", bootstrap.mean(change, q), grouping="per_layer", group="q_anchored", at=value)
