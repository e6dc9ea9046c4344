"""Ask a model the questions of one shard and write what it says (GENERATED), without looking into the model.

Only needed where a language model looks for the exact tokens of the answers before activations are read, or where
several extractors need the same answers.
"""

import argparse
from pathlib import Path

import transformers

from deltap import cli
from deltap.code import code_digest
from deltap.generation import Generation, answers_identity, shard_questions
from deltap.given import read_answers
from deltap.models.check import check_model
from deltap.models.language_model import load_language_model
from deltap.models.load import engine_facts
from deltap.provenance import provenance
from deltap.settings import AnswersStage
from deltap.store import Store
from deltap.tables import GENERATED, QUESTIONS, read_metadata, read_table, write_table


def main(options: argparse.Namespace) -> None:
    """Run one answers job, as the only one that writes its chunks."""
    stage = cli.settings(AnswersStage, options.settings)
    series = f"{stage.model}/{stage.dataset}/{options.shard}"
    what = [stage.model_dump(mode="json"), code_digest(__file__), str(options.model.resolve())]
    with Store(options.store).lock(series, what):
        ask(stage, options)


def ask(stage: AnswersStage, options: argparse.Namespace) -> None:
    """Ask a shard's questions."""
    transformers.utils.logging.disable_progress_bar()
    questions = shard_questions(options.questions, options.shard, stage.inference).to_pylist()
    # Of the whole data set: whether a file says anything about it does not depend on the shard.
    every = read_table(options.questions, QUESTIONS).to_pylist()
    given = read_answers(options.given_answers, every, stage.model, stage.dataset, stage.bad_rows)

    model = load_language_model(options.model, stage.entry, stage.prompt)
    check_model(model.engine, model.prompter, stage.inference.sites)
    facts = {"model_revision": model.revision, **engine_facts(model.engine, stage.entry)}
    inputs = read_metadata(options.questions).get("provenance")
    made_by = provenance(__file__, stage.model_dump(mode="json"), inputs=inputs, **facts)
    identity = answers_identity(facts, made_by["versions"], code_digest(__file__), stage.entry, stage.prompt)
    store = Store(options.store)
    generation = Generation(model, stage.model, stage.dataset, store, identity, given)

    rows = []
    with cli.progress((), f"{stage.model}, {stage.dataset}: answers", total=len(questions), unit="answer") as bar:
        for start in range(0, len(questions), stage.inference.chunk_questions):
            chunk = questions[start : start + stage.inference.chunk_questions]
            prompts = generation.prompts(chunk)
            answers, _ = generation(chunk, prompts, bar.update)
            for path, said in generation.fresh().items():
                store.write(path, {}, said)
            for question, prompt, generated in zip(chunk, prompts, answers, strict=True):
                rows.append(
                    {
                        "model": stage.model,
                        "dataset": stage.dataset,
                        "question_id": question["question_id"],
                        "question": question["question"],
                        "answer": model.read(prompt, generated.ids, generated.given).text if generated else "",
                        "generated_ids": generated.ids if generated else None,
                        "given": bool(given),
                    }
                )
    write_table(options.out, rows, GENERATED, {"provenance": made_by})


if __name__ == "__main__":
    parser = cli.parser(__doc__)
    parser.add_argument("--settings", required=True, help="settings.AnswersStage: JSON, or a file's path")
    parser.add_argument("--questions", required=True, type=Path, help="the data set's questions (Parquet)")
    parser.add_argument("--model", required=True, type=Path, help="the model's directory")
    parser.add_argument("--given-answers", type=Path, nargs="*", default=[], help="files of answers instead")
    parser.add_argument("--shard", type=int, default=0, help="which shard, from 0")
    parser.add_argument("--store", required=True, type=Path, help="where finished chunks are kept")
    parser.add_argument("--out", required=True, type=Path, help="the shard's answers (Parquet)")
    cli.run(main, parser)
