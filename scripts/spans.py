"""Let a language model name the exact tokens of questions and answers (SPANS).

Its replies are kept, so that nothing is asked for twice.
"""

import argparse
from pathlib import Path

import transformers

from deltap import cli
from deltap.given import read_spans
from deltap.llm.replier import replier
from deltap.llm.spans import find_spans
from deltap.mixed import refuse_other_source
from deltap.provenance import made, provenance, same_origin
from deltap.settings import SpansStage
from deltap.tables import GENERATED, QUESTIONS, SPANS, read_table, write_table


def main(options: argparse.Namespace) -> None:
    """Find the spans of one model, data set and extractor."""
    stage = cli.settings(SpansStage, options.settings)
    transformers.utils.logging.disable_progress_bar()
    made_by = same_origin(options.answers)
    refuse_other_source(options.answers[0], made_by, options.questions, made(options.questions))
    questions = {row["question_id"]: row for row in read_table(options.questions, QUESTIONS).to_pylist()}
    said = [row for path in options.answers for row in read_table(path, GENERATED).to_pylist()]
    samples = [{**questions[row["question_id"]], "answer": row["answer"]} for row in said]
    given = read_spans(options.given_spans, samples, stage.model, stage.dataset, stage.bad_rows)

    asked = replier(stage.llm, stage.entry, options.model, options.cache)
    with cli.progress((), f"{stage.model}, {stage.dataset}: spans", total=2 * len(samples), unit="text") as bar:
        spans = find_spans(asked, samples, stage.extractor, given, bar.update)

    rows = [
        {
            "model": stage.model,
            "dataset": stage.dataset,
            "extractor": stage.extractor,
            "question_id": sample["question_id"],
            "exact_question": item.exact_question or None,
            "answer": sample["answer"],
            "exact_answer": item.exact_answer,
        }
        for sample, item in zip(samples, spans, strict=True)
    ]
    settings = stage.model_dump(mode="json")
    metadata = {"provenance": provenance(__file__, settings, inputs=made_by, asked=asked.identity())}
    write_table(options.out, rows, SPANS, metadata)
    cli.logger.info(
        "%d questions and %d answers of %d named",
        *(sum(bool(row[name]) for row in rows) for name in ("exact_question", "exact_answer")),
        len(rows),
    )


if __name__ == "__main__":
    parser = cli.parser(__doc__)
    parser.add_argument("--settings", required=True, help="settings.SpansStage: JSON, or a file's path")
    parser.add_argument("--questions", required=True, type=Path, help="the data set's questions (Parquet)")
    parser.add_argument("--answers", required=True, type=Path, nargs="+", help="what scripts/answers.py wrote")
    parser.add_argument("--given-spans", type=Path, nargs="*", default=[], help="files of exact tokens, asked first")
    parser.add_argument("--model", type=Path, help="the language model's directory, unless it is a server's")
    parser.add_argument("--cache", required=True, type=Path, help="where replies are kept")
    parser.add_argument("--out", required=True, type=Path, help="the spans (Parquet)")
    cli.run(main, parser)
