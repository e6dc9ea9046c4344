"""Train a probe for each site, position and layer on the clean activations of the train split.

Writes the probes (safetensors) and their scores on every split (PROBES). Where a split has answers of one class only
there are no probes, and their scores have numbers of samples alone.
"""

import argparse
from pathlib import Path

from deltap import cli
from deltap.mixed import refuse_other_source
from deltap.probe import Probe, write_probes
from deltap.probes import fit_layers, lacking_class, untrained
from deltap.provenance import provenance
from deltap.samples import by_split, probe_samples
from deltap.settings import ProbesStage
from deltap.tables import PROBES, write_table
from deltap.tensors import activation_files


def main(options: argparse.Namespace) -> None:
    """Train the probes of one model and data set."""
    stage = cli.settings(ProbesStage, options.settings)
    samples = probe_samples(options.labels)
    splits = by_split(samples)
    truthful = {split: part["truthful"] for split, part in splits.items()}
    what = f"{samples.constants['model']}, {samples.constants['dataset']}"
    lacking = lacking_class(truthful)
    if lacking:
        cli.logger.warning("%s: no probes, and so no curves: %s", what, lacking)

    probes: dict[tuple[str, str, int], Probe] = {}
    scores = []
    pairs = [(site, position) for site in stage.sites for position in stage.positions]
    for site, position in cli.progress(pairs, f"{what} (probes)", unit="site"):
        files = activation_files(options.clean, "clean", site, position)
        refuse_other_source(options.labels, samples.provenance, files.first_path, files.provenance)
        constants = {**samples.constants, "site": site, "position": position}
        if lacking:
            scores += [{**constants, **score} for score in untrained(files.layers, truthful)]
            continue
        rows = {split: files.rows_of(part["shard"], part["clean_row"]) for split, part in splits.items()}
        for layer, (fit, split_scores) in enumerate(fit_layers(files, rows, truthful, stage.probe, options.jobs)):
            probes[site, position, layer] = fit.probe
            scores += [{**constants, **score} for score in split_scores]

    unfinished = sum(score.get("converged") is False for score in scores if score["split"] == "train")
    if unfinished:
        cli.logger.warning(
            "%d of %d probes did not converge; raise probe.max_iterations", unfinished, len(scores) // len(splits)
        )
    made_by = provenance(__file__, stage.model_dump(mode="json"), inputs=samples.provenance)
    write_probes(options.out, probes, {"provenance": made_by})
    write_table(options.scores, scores, PROBES, {"provenance": made_by})


if __name__ == "__main__":
    parser = cli.parser(__doc__)
    parser.add_argument("--settings", required=True, help="settings.ProbesStage: JSON, or a file's path")
    parser.add_argument("--labels", required=True, type=Path, help="the labelled answers (Parquet)")
    parser.add_argument("--clean", required=True, type=Path, nargs="+", help="the clean activations of every shard")
    parser.add_argument("--jobs", type=int, default=1, help="probes trained at the same time; changes no number")
    parser.add_argument("--out", required=True, type=Path, help="the probes (safetensors)")
    parser.add_argument("--scores", required=True, type=Path, help="their scores (Parquet)")
    cli.run(main, parser)
