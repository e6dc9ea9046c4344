"""Label the answers of all shards of a model and data set as truthful, hallucinated or abstained (LABELS)."""

import argparse
from pathlib import Path
from typing import Any

from deltap import cli
from deltap.errors import DeltapError
from deltap.labels import counts, labelled
from deltap.provenance import provenance, same_origin
from deltap.settings import LabelsStage
from deltap.tables import ANSWERS, LABELS, read_table, write_batches


def main(options: argparse.Namespace) -> None:
    """Label the answers."""
    stage = cli.settings(LabelsStage, options.settings)
    made_by = same_origin(options.answers)
    tables = [labelled(read_table(path, ANSWERS), shard, stage.labels) for shard, path in enumerate(options.answers)]
    for name in ("model", "dataset", "extractor"):
        values = sorted({str(value) for table in tables for value in table[name].unique().to_pylist()})
        if len(values) > 1:
            raise DeltapError(
                f"{options.answers[0]} …: the shards mix {name}s: {', '.join(values)}; give one at a time"
            )
    found = counts(tables)
    metadata = {"provenance": provenance(__file__, stage.model_dump(mode="json"), inputs=made_by), "counts": found}
    write_batches(options.out, tables, LABELS, metadata)
    cli.logger.info("%s", summary(found))


def summary(found: dict[str, Any]) -> str:
    """Return the counts in words."""
    labels, samples = found["labels"], found["samples"]
    exclusions = ", ".join(f"{number} {reason}" for reason, number in found["exclusions"].items())
    agreement = ", ".join(
        f"{pair} {'–' if share is None else f'{share:.1%}'}" for pair, share in found["agreement"].items()
    )
    return "\n".join(
        (
            f"{found['answers']} answers: " + ", ".join(f"{number} {name}" for name, number in labels.items()),
            f"samples for probes: {samples['truthful']} truthful, {samples['hallucinated']} hallucinated",
            f"excluded: {exclusions or 'none'}",
            f"truthful answers that only repeat the question: {found['echoes']}",
            f"same label by two ways of matching: {agreement}",
        )
    )


if __name__ == "__main__":
    parser = cli.parser(__doc__)
    parser.add_argument("--answers", required=True, type=Path, nargs="+", help="the shards' answers, in their order")
    parser.add_argument("--settings", required=True, help="settings.LabelsStage: JSON, or a file's path")
    parser.add_argument("--out", required=True, type=Path, help="the labelled answers (Parquet)")
    cli.run(main, parser)
