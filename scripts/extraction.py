"""Report how good the exact tokens are: by source (EXTRACTION), and rules against fields (EXTRACTION_FIELDS)."""

import argparse
from pathlib import Path

from deltap import cli
from deltap.extraction_quality import against_fields, agreements, by_source, report
from deltap.files import write_text
from deltap.provenance import provenance
from deltap.tables import (
    EXTRACTION,
    EXTRACTION_FIELDS,
    LABELS,
    QUESTIONS,
    iterate_table,
    read_metadata,
    read_table,
    write_table,
)


def main(options: argparse.Namespace) -> None:
    """Write both tables and the report of one run."""
    found = by_source(iterate_table(options.answers, LABELS))
    questions = (row for path in options.questions for row in read_table(path, QUESTIONS).to_pylist())
    compared = against_fields(questions)
    agreed = agreements(compared)
    metadata = read_metadata(options.answers)
    labels = metadata.get("labels", {})
    about = {"labels": labels, "provenance": provenance(__file__, {}, inputs=metadata.get("provenance"))}
    write_table(options.out, found, EXTRACTION, about)
    counts = {dataset: item._asdict() for dataset, item in agreed.items()}
    write_table(options.fields, compared, EXTRACTION_FIELDS, {**about, "agreement": counts})
    write_text(options.report, report(found, compared, {kind: dict(pairs) for kind, pairs in labels.items()}))
    for dataset, item in agreed.items():
        cli.logger.info("%s: rules against the fields of %d questions: F1 %.3f", dataset, item.questions, item.f1)


if __name__ == "__main__":
    parser = cli.parser(__doc__)
    parser.add_argument("--answers", required=True, type=Path, help="the labelled answers of the run (Parquet)")
    parser.add_argument("--questions", required=True, type=Path, nargs="+", help="its tables of questions (Parquet)")
    parser.add_argument("--out", required=True, type=Path, help="coverage, shares and lengths (Parquet)")
    parser.add_argument("--fields", required=True, type=Path, help="rules against fields, by question (Parquet)")
    parser.add_argument("--report", required=True, type=Path, help="both for people (Markdown)")
    cli.run(main, parser)
