"""Write a row for each question that was asked (SAMPLES), and an overview of them in Markdown."""

import argparse
from pathlib import Path

import pyarrow as pa

from deltap import cli
from deltap.files import write_text
from deltap.overview import overviews, question_facts, report, sample_table
from deltap.provenance import provenance
from deltap.tables import LABELS, QUESTIONS, SAMPLES, iterate_table, read_metadata, read_table, write_table


def main(options: argparse.Namespace) -> None:
    """Write the table and the overview of one run."""
    facts = question_facts(read_table(path, QUESTIONS) for path in options.questions)
    parts = [sample_table(batch, facts) for batch in iterate_table(options.answers, LABELS)]
    table = pa.concat_tables([SAMPLES.empty_table(), *parts])
    metadata = read_metadata(options.answers)
    made_by = provenance(__file__, {}, inputs=metadata.get("provenance"))
    labels = metadata.get("labels", {})
    write_table(options.out, table, SAMPLES, {"labels": labels, "provenance": made_by})
    write_text(options.report, report(overviews(table), {kind: dict(pairs) for kind, pairs in labels.items()}))
    cli.logger.info("%d questions, %d for probes", len(table), sum(table["used_for_probes"].to_pylist()))


if __name__ == "__main__":
    parser = cli.parser(__doc__)
    parser.add_argument("--answers", required=True, type=Path, help="the labelled answers of the run (Parquet)")
    parser.add_argument("--questions", required=True, type=Path, nargs="+", help="its tables of questions (Parquet)")
    parser.add_argument("--out", required=True, type=Path, help="the samples (Parquet)")
    parser.add_argument("--report", required=True, type=Path, help="the overview (Markdown)")
    cli.run(main, parser)
