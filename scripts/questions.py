"""Read a question set, leave out what cannot be asked, sample and split it: one table of questions."""

import argparse
from pathlib import Path
from typing import Any

from deltap.cli import parser, run, settings
from deltap.files import file_sha256, unchanged
from deltap.provenance import provenance
from deltap.questions.build import question_table
from deltap.questions.hub import downloaded
from deltap.settings import QuestionsStage
from deltap.tables import QUESTIONS, write_table


def main(options: argparse.Namespace) -> None:
    """Write the questions of one data set to ``options.out``."""
    stage = settings(QuestionsStage, options.settings)
    described = stage.model_dump(mode="json")
    facts: dict[str, Any] = {}
    if stage.entry.hub:
        entry, facts["download"] = downloaded(stage.entry, options.manifest)
        stage = stage.model_copy(update={"entry": entry})
    files = {key: Path(path) for key in ("path", "ids_file") if (path := described["entry"][key])}
    with unchanged(files.values()):
        rows, counts = question_table(stage)
        for key, path in files.items():
            # The file's content decides the table, and not the folder in which it lies.
            described["entry"][key] = path.name
            facts["file_sha256" if key == "path" else "ids_file_sha256"] = file_sha256(path)
    metadata = {"provenance": provenance(__file__, described, **facts), "counts": counts}
    write_table(options.out, rows, QUESTIONS, metadata)


if __name__ == "__main__":
    arguments = parser(__doc__)
    arguments.add_argument("--settings", required=True, help="QuestionsStage as JSON, or a JSON or YAML file of it")
    arguments.add_argument("--manifest", type=Path, help="the download's manifest, for a data set of the hub")
    arguments.add_argument("--out", type=Path, required=True, help="the table of questions (Parquet)")
    run(main, arguments)
