"""Compute the controls of one model and data set: what selection, chance and other cuts give instead of the effect.

Writes ΔP of every control, sample by sample (DELTA_P), and the statistics (CONTROLS).
"""

import argparse
from pathlib import Path

from deltap import cli
from deltap.controls.estimates import rows
from deltap.controls.findings import findings
from deltap.controls.measured import read_measured
from deltap.controls.probabilities import probabilities
from deltap.mixed import refuse_mixed, refuse_other_source
from deltap.probe import check_made_together
from deltap.provenance import provenance, same_origin
from deltap.samples import probe_samples
from deltap.settings import ControlsStage
from deltap.tables import ANCHORS, CONTROLS, DELTA_P, read_metadata, read_table, write_batches, write_table


def main(options: argparse.Namespace) -> None:
    """Compute every control of one series."""
    stage = cli.settings(ControlsStage, options.settings)
    settings = stage.controls
    samples = probe_samples(options.labels)
    check_made_together(options.labels, options.scores, options.probes)
    constants = {**samples.constants, "site": settings.site, "position": settings.position}
    tables = [DELTA_P.empty_table()]
    statistics = CONTROLS.empty_table()
    measured = read_measured(
        samples,
        settings,
        stage.probe,
        probes=options.probes,
        scores=options.scores,
        clean=options.clean,
        knockout=options.knockout,
        interventions=options.interventions,
        cuts=options.cuts,
    )
    if measured:
        for files in (measured.clean, measured.cut.files):
            refuse_other_source(options.labels, samples.provenance, files.first_path, files.provenance)
        made_by = same_origin(options.interventions) if options.interventions else None
        for cut in measured.interventions.values():
            refuse_mixed(options.interventions[0], cut.files.first_path, made_by, cut.files.provenance)
    if measured is None or not measured.samples:
        lacking = "no probes" if measured is None else "no test samples"
        cli.logger.warning("%s, %s: %s, and so no controls", settings.site, settings.position, lacking)
    else:
        found = probabilities(measured, settings, options.jobs)
        anchors = read_table(options.anchors, ANCHORS)
        controls, statistics = findings(measured, found, stage, anchors, constants)
        tables += [rows(each, measured, stage.groupings, stage.anchors, constants) for each in controls]
    inputs = [samples.provenance, read_metadata(options.scores).get("provenance")]
    made_by = provenance(__file__, stage.model_dump(mode="json"), inputs=inputs)
    write_batches(options.rows, tables, DELTA_P, {"provenance": made_by})
    write_table(options.out, statistics, CONTROLS, {"provenance": made_by})
    cli.logger.info("%d rows of ΔP, %d statistics", sum(map(len, tables)), len(statistics))


if __name__ == "__main__":
    parser = cli.parser(__doc__)
    parser.add_argument("--settings", required=True, help="settings.ControlsStage: JSON, or a file's path")
    parser.add_argument("--labels", required=True, type=Path, help="the labelled answers (Parquet)")
    parser.add_argument("--probes", required=True, type=Path, help="the probes (safetensors)")
    parser.add_argument("--scores", required=True, type=Path, help="the probes' scores (Parquet)")
    parser.add_argument("--anchors", required=True, type=Path, help="the anchors of every site and position (Parquet)")
    parser.add_argument("--clean", required=True, type=Path, nargs="+", help="the clean activations of every shard")
    parser.add_argument("--knockout", required=True, type=Path, nargs="+", help="the same under knockout")
    parser.add_argument("--interventions", type=Path, nargs="*", default=[], help="what else was cut, of every shard")
    parser.add_argument("--cuts", type=Path, nargs="*", default=[], help="the activations under it")
    parser.add_argument("--jobs", type=int, default=1, help="layers at the same time; changes no number")
    parser.add_argument("--rows", required=True, type=Path, help="ΔP under each control (Parquet)")
    parser.add_argument("--out", required=True, type=Path, help="the statistics (Parquet)")
    cli.run(main, parser)
