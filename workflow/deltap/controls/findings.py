"""Everything that the controls of one series find: rows of CONTROLS, and ΔP of the controls sample by sample."""

from collections.abc import Mapping

import pyarrow as pa

from deltap.controls import cuts
from deltap.controls.against import compare
from deltap.controls.bimodality import bimodality
from deltap.controls.classes import classes
from deltap.controls.compare import Bootstrap
from deltap.controls.estimates import Estimated, Estimates
from deltap.controls.measured import Measured
from deltap.controls.probabilities import Probabilities
from deltap.controls.refits import refits
from deltap.controls.regrouping import majority, regrouping, verdicts
from deltap.controls.rows import Rows
from deltap.controls.strength import strength
from deltap.settings import ControlsStage


def findings(
    measured: Measured, found: Probabilities, stage: ControlsStage, anchors: pa.Table, constants: Mapping[str, str]
) -> tuple[list[Estimated], pa.Table]:
    """Return what every control estimates, and the CONTROLS rows.

    ``anchors``: the ANCHORS of the series at every site and position; ``constants``: model, dataset, extractor, site
    and position.
    """
    settings = stage.controls
    estimates = Estimates(measured, found, settings, stage.reference_class)
    bootstrap = Bootstrap.seeded(measured.samples, stage.bootstrap, settings.min_n)
    rows = Rows(constants, stage.bootstrap.level)
    controls = list(estimates.controls())

    stable = regrouping(estimates, anchors, settings.stable, rows)
    controls.append(estimates.stable(majority(verdicts(estimates)[0])[0], stable))
    compare(estimates.method(), controls, bootstrap, rows)
    random = [each for each in controls if each.name in ("random_tokens", "random_mass")]
    classes(estimates.method(), random, measured.truthful["test"], bootstrap, rows)
    permuted = next((each for each in controls if each.estimate == "permuted_labels"), None)
    bimodality(estimates, permuted, settings.seed, rows)
    refits(estimates, bootstrap, rows)
    strength(estimates, settings.strength, bootstrap, rows)
    cuts.dose(estimates, bootstrap, rows)
    cuts.alike(estimates, bootstrap, rows)
    cuts.logit_change(estimates, rows)
    if settings.interventions and settings.interventions.windows:
        cuts.windows(estimates, settings.interventions.windows, bootstrap, rows)
    if settings.interventions and settings.interventions.heads:
        cuts.heads(estimates, settings.interventions.heads.layers, bootstrap, rows)
    return controls, rows.table()
