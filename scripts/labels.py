"""Label the answers of all shards of a model and data set as truthful, hallucinated or abstained (LABELS)."""

import argparse
from pathlib import Path
from typing import Any

from deltap import cli
from deltap.errors import DeltapError
from deltap.given import read_labels
from deltap.labels import counts, labelled
from deltap.mixed import refuse_other_source
from deltap.provenance import made, provenance, same_origin
from deltap.settings import LabelsStage
from deltap.tables import ANSWERS, JUDGEMENTS, LABELS, read_table, write_batches


def main(options: argparse.Namespace) -> None:
    """Label the answers."""
    stage = cli.settings(LabelsStage, options.settings)
    made_by = same_origin(options.answers)
    shards = [read_table(path, ANSWERS) for path in options.answers]
    names = {}
    for name in ("model", "dataset", "extractor"):
        values = sorted({str(value) for table in shards for value in table[name].unique().to_pylist()})
        if len(values) > 1:
            raise DeltapError(
                f"{options.answers[0]} …: the shards mix {name}s: {', '.join(values)}; give one at a time"
            )
        names[name] = "".join(values)
    questions = [row for table in shards for row in table.select(["question_id", "question"]).to_pylist()]
    given = read_labels(options.given_labels, questions, names["model"], names["dataset"], stage.bad_rows)
    judged = {}
    if options.judgements:
        refuse_other_source(options.judgements, made(options.judgements), options.answers[0], made_by)
        table = read_table(options.judgements, JUDGEMENTS).select(["question_id", "label"])
        judged = {row["question_id"]: row["label"] for row in table.to_pylist()}
    tables = [labelled(table, shard, stage.labels, judged, given) for shard, table in enumerate(shards)]
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
            f"same label by two ways of labelling: {agreement}",
        )
    )


if __name__ == "__main__":
    parser = cli.parser(__doc__)
    parser.add_argument("--answers", required=True, type=Path, nargs="+", help="the shards' answers, in their order")
    parser.add_argument("--judgements", type=Path, help="what scripts/judge.py wrote (Parquet)")
    parser.add_argument("--given-labels", type=Path, nargs="*", default=[], help="files of labels, which count instead")
    parser.add_argument("--settings", required=True, help="settings.LabelsStage: JSON, or a file's path")
    parser.add_argument("--out", required=True, type=Path, help="the labelled answers (Parquet)")
    cli.run(main, parser)
