"""Say what a run costs before it starts: FLOPs, GPU hours, memory and disk, for each model and in total."""

import argparse
from pathlib import Path

from deltap import cli
from deltap.cost import Shape, read_shape
from deltap.errors import DeltapError
from deltap.files import write_json, write_text
from deltap.plan import as_json, asked, planned, report
from deltap.questions.source import source_rows
from deltap.settings import ModelEntry, PlanStage

_UNKNOWN = "It is not downloaded, and its entry has no shape: run snakemake download first."


def main(options: argparse.Namespace) -> None:
    """Plan one run."""
    stage = cli.settings(PlanStage, options.settings)
    questions = {name: _questions(stage, name) for name in stage.datasets}
    llm = stage.llm
    found, unknown = [], {}
    for name, entry in stage.models.items():
        shape = _shape(entry, stage.directories[name])
        if not shape:
            unknown[name] = _UNKNOWN
            continue
        found.append(
            planned(
                name,
                entry,
                shape,
                list(questions.values()),
                stage.test,
                stage.plan,
                sites=stage.sites,
                positions=stage.positions,
                shards=stage.shards,
                extractors=stage.extractors,
                answers_apart=stage.answers_apart,
                interventions=stage.interventions,
            )
        )
    names = {name: entry.label for name, entry in stage.models.items()}
    requests = llm.requests * len(stage.models) * sum(questions.values()) if llm else 0
    if llm and llm.name and llm.entry and llm.directory and requests:
        name = f"{llm.name} (llm)"
        names[name] = f"{llm.entry.label} (exact tokens, labels)"
        if shape := _shape(llm.entry, llm.directory):
            loads = llm.jobs * len(stage.models) * len(questions)
            found.append(asked(name, llm.entry, shape, requests, loads, stage.plan))
        else:
            unknown[name] = _UNKNOWN
    text = report(found, unknown, stage.plan, questions, names, requests)
    print(text)
    if options.out:
        write_text(options.out, text)
        write_json(options.out.with_suffix(".json"), as_json(found, stage.plan))


def _shape(entry: ModelEntry, directory: str) -> Shape | None:
    """Return a model's shape, None where it is not known yet."""
    if (Path(directory) / "config.json").is_file():
        return read_shape(Path(directory))
    return Shape(**entry.shape.model_dump()) if entry.shape else None


def _questions(stage: PlanStage, name: str) -> int:
    """Return how many questions a data set is asked, at most."""
    entry = stage.datasets[name]
    there = sum(1 for _ in source_rows(entry, name)) if entry.path else None
    if there is None and stage.number is None:
        raise DeltapError(
            f"data set {name}: how many questions it has is not known before it is downloaded; give number"
        )
    return min(number for number in (there, stage.number) if number is not None)


if __name__ == "__main__":
    parser = cli.parser(__doc__)
    parser.add_argument("--settings", required=True, help="settings.PlanStage: JSON, or a file's path")
    parser.add_argument("--out", type=Path, help="write the plan here (Markdown), and beside it as JSON")
    cli.run(main, parser)
