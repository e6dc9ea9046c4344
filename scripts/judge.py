"""Let a language model judge the answers of all shards of a model and data set (JUDGEMENTS).

Not judged are answers that abstain. Replies are kept, so that nothing is asked for twice.
"""

import argparse
from pathlib import Path

import transformers

from deltap import cli
from deltap.labels import abstains
from deltap.llm.judge import judge
from deltap.llm.replier import replier
from deltap.provenance import provenance, same_origin
from deltap.settings import JudgeStage
from deltap.tables import ANSWERS, JUDGEMENTS, read_table, write_table


def main(options: argparse.Namespace) -> None:
    """Judge the answers."""
    stage = cli.settings(JudgeStage, options.settings)
    transformers.utils.logging.disable_progress_bar()
    made_by = same_origin(options.answers)
    rows = [row for path in options.answers for row in read_table(path, ANSWERS).to_pylist()]
    asked = [row for row in rows if not abstains(row["answer"])]

    judges = replier(stage.llm, stage.entry, options.model, options.cache)
    with cli.progress((), "judging", total=len(asked), unit="answer") as bar:
        labels = judge(judges, asked, bar.update)

    for row, label in zip(asked, labels, strict=True):
        row["label"] = label
    settings = stage.model_dump(mode="json")
    metadata = {"provenance": provenance(__file__, settings, inputs=made_by, asked=judges.identity())}
    write_table(options.out, [{name: row.get(name) for name in JUDGEMENTS.names} for row in rows], JUDGEMENTS, metadata)
    cli.logger.info("%d of %d answers judged", sum(label is not None for label in labels), len(rows))


if __name__ == "__main__":
    parser = cli.parser(__doc__)
    parser.add_argument("--settings", required=True, help="settings.JudgeStage: JSON, or a file's path")
    parser.add_argument("--answers", required=True, type=Path, nargs="+", help="the shards' answers, in their order")
    parser.add_argument("--model", type=Path, help="the language model's directory, unless it is a server's")
    parser.add_argument("--cache", required=True, type=Path, help="where replies are kept")
    parser.add_argument("--out", required=True, type=Path, help="the judgements (Parquet)")
    cli.run(main, parser)
