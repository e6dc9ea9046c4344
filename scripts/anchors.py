"""Apply the probes to both passes of the test samples and find whose verdict flips (ANCHORS)."""

import argparse
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from deltap import cli
from deltap.anchors import anchors
from deltap.mixed import refuse_other_source
from deltap.probe import check_made_together, read_probes, reference_layer
from deltap.provenance import made, provenance
from deltap.samples import by_split, probe_samples
from deltap.tables import ANCHORS, PROBES, read_table, write_table
from deltap.tensors import activation_files


def main(options: argparse.Namespace) -> None:
    """Find the anchors of one model and data set."""
    samples = probe_samples(options.labels)
    test = by_split(samples)["test"]
    if not len(test["question_id"]):
        cli.logger.warning("%s: no test sample is left, and so no curve; ask more questions", options.labels)
    check_made_together(options.labels, options.scores, options.probes)
    probes = read_probes(options.probes)
    scores = [row for row in read_table(options.scores, PROBES).to_pylist() if row["split"] == "validation"]

    parts = [ANCHORS.empty_table()]
    for site, position in dict.fromkeys((row["site"], row["position"]) for row in scores):
        validation = [row for row in scores if (row["site"], row["position"]) == (site, position)]
        if (site, position, 0) not in probes:
            cli.logger.warning("%s, %s: no probes, and so no curve; the log of the probes says why", site, position)
            continue
        k_star = reference_layer([row["layer"] for row in validation], [row["auroc"] for row in validation])
        clean = activation_files(options.clean, "clean", site, position)
        knockout = activation_files(options.knockout, "knockout", site, position)
        for files in (clean, knockout):
            refuse_other_source(options.labels, samples.provenance, files.first_path, files.provenance)
        rows = {
            "question_id": test["question_id"],
            "label": test["label"],
            "clean_row": clean.rows_of(test["shard"], test["clean_row"]),
            "knockout_row": knockout.rows_of(test["shard"], test["knockout_row"]),
        }
        constants = {**samples.constants, "site": site, "position": position}
        of_layers = [probes[site, position, layer] for layer in range(len(validation))]
        parts.append(anchors(of_layers, clean, knockout, rows, k_star, constants))
    table = pa.concat_tables([part.select(ANCHORS.names).cast(ANCHORS) for part in parts])
    near = pc.sum(table["near_threshold"], min_count=0).as_py()
    cli.logger.info(
        "%d of %d verdicts rest on a probability so near to 0.5 that rounding may decide (near_threshold)",
        near,
        len(table),
    )
    inputs = [samples.provenance, made(options.scores)]
    write_table(options.out, table, ANCHORS, {"provenance": provenance(__file__, {}, inputs=inputs)})


if __name__ == "__main__":
    parser = cli.parser(__doc__)
    parser.add_argument("--labels", required=True, type=Path, help="the labelled answers (Parquet)")
    parser.add_argument("--probes", required=True, type=Path, help="the probes (safetensors)")
    parser.add_argument("--scores", required=True, type=Path, help="the probes' scores (Parquet)")
    parser.add_argument("--clean", required=True, type=Path, nargs="+", help="the clean activations of every shard")
    parser.add_argument("--knockout", required=True, type=Path, nargs="+", help="the same under knockout")
    parser.add_argument("--out", required=True, type=Path, help="the anchors (Parquet)")
    cli.run(main, parser)
