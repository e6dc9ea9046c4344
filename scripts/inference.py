"""Ask a model the questions of one shard and read its activations, clean and under attention knockout.

Writes the answers (ANSWERS, with both exact spans) and one safetensors file of activations per pass, site and position:
<out>/answers.parquet, <out>/clean.<site>.<position>.safetensors, <out>/knockout.<site>.<position>.safetensors.
"""

import argparse
from pathlib import Path

import pyarrow as pa
import transformers

from deltap import cli
from deltap.code import code_digest
from deltap.generation import Generation, answers_identity, read_generated, shard_questions
from deltap.given import Given, read_answers, read_spans
from deltap.inference import Inference, run_shard, shard_answers, write_shard
from deltap.llm.spans import read_llm_spans
from deltap.mixed import refuse_other_source
from deltap.models.check import check_model
from deltap.models.language_model import load_language_model
from deltap.models.load import engine_facts
from deltap.named import Named
from deltap.provenance import made, provenance
from deltap.settings import InferenceStage
from deltap.store import Store
from deltap.tables import ANSWERS, QUESTIONS, read_table, write_batches


def main(options: argparse.Namespace) -> None:
    """Run one inference job, as the only one that writes its chunks."""
    stage = cli.settings(InferenceStage, options.settings)
    series = f"{stage.model}/{stage.dataset}/{stage.extractor}/{options.shard}"
    what = [stage.model_dump(mode="json"), code_digest(__file__), str(options.model.resolve())]
    with Store(options.store).lock(series, what):
        infer(stage, options)


def infer(stage: InferenceStage, options: argparse.Namespace) -> None:
    """Answer a shard's questions and read the activations."""
    transformers.utils.logging.disable_progress_bar()
    table = shard_questions(options.questions, options.shard, stage.inference)
    given, named = given_to(stage, options, table)

    model = load_language_model(options.model, stage.entry, stage.prompt)
    check_model(model.engine, model.prompter, stage.inference.sites)
    facts = {"model_revision": model.revision, **engine_facts(model.engine, stage.entry)}
    inputs = made(options.questions)
    if options.generated:
        refuse_other_source(options.generated, made(options.generated), options.questions, inputs)
        if options.llm_spans:
            refuse_other_source(options.llm_spans, made(options.llm_spans), options.generated, made(options.generated))
    made_by = provenance(__file__, stage.model_dump(mode="json"), inputs=inputs, **facts)
    store = Store(options.store)
    answers = Path(__file__).with_name("answers.py")
    generation = Generation(
        model,
        stage.model,
        stage.dataset,
        store,
        answers_identity(facts, made_by["versions"], code_digest(answers), stage.entry, stage.prompt),
        given,
        read_generated(options.generated, table.to_pylist()) if options.generated else None,
    )
    # What a chunk depends on; how the questions are dealt out does not matter.
    identity = {
        **facts,
        "answered": "apart" if options.generated else "here",  # decides how activations are read
        "code": made_by["code"],
        "versions": {name: made_by["versions"][name] for name in ("torch", "transformers", "tokenizers")},
        "settings": stage.model_dump(
            mode="json", exclude={"inference": {"shards", "chunk_questions"}, "bad_rows": True}
        ),
    }
    description = f"{stage.model}, {stage.dataset}"
    with cli.progress((), description, total=3 * len(table), unit="pass") as bar:
        chunks = run_shard(Inference(generation, stage, named), table, store, identity, bar.update)

    metadata = {"provenance": made_by}
    passes = [
        f"{name}/{site}/{position}"
        for name in ("clean", "knockout")
        for site in stage.inference.sites
        for position in stage.inference.positions
    ]
    write_shard(chunks, {name: options.out / f"{name.replace('/', '.')}.safetensors" for name in passes}, metadata)
    write_batches(options.out / "answers.parquet", shard_answers(chunks), ANSWERS, metadata)
    reasons = read_table(options.out / "answers.parquet", ANSWERS, ["exclusion"])["exclusion"].to_pylist()
    excluded = [reason for reason in reasons if reason]
    cli.logger.info("%d answers, %d without activations%s", len(reasons), len(excluded), cli.counts(excluded))


def given_to(stage: InferenceStage, options: argparse.Namespace, table: pa.Table) -> tuple[Given[str] | None, Named]:
    """Return the answers and the exact tokens that files give."""
    # Of the whole data set: whether a file says anything about it does not depend on the shard.
    is_given = options.given_answers or options.given_spans
    every = read_table(options.questions, QUESTIONS).to_pylist() if is_given else []
    whose = (stage.model, stage.dataset, stage.bad_rows)
    llm = read_llm_spans(options.llm_spans, table.to_pylist()) if options.llm_spans else {}
    answers, spans = read_answers(options.given_answers, every, *whose), read_spans(options.given_spans, every, *whose)
    return answers, Named(spans, llm)


if __name__ == "__main__":
    parser = cli.parser(__doc__)
    parser.add_argument("--settings", required=True, help="settings.InferenceStage: JSON, or a file's path")
    parser.add_argument("--questions", required=True, type=Path, help="the data set's questions (Parquet)")
    parser.add_argument("--model", required=True, type=Path, help="the model's directory")
    parser.add_argument("--generated", type=Path, help="what scripts/answers.py wrote for this shard (Parquet)")
    parser.add_argument("--llm-spans", type=Path, help="what scripts/spans.py wrote (Parquet)")
    parser.add_argument("--given-answers", type=Path, nargs="*", default=[], help="files of answers instead")
    parser.add_argument("--given-spans", type=Path, nargs="*", default=[], help="files of exact tokens")
    parser.add_argument("--shard", type=int, default=0, help="which shard, from 0")
    parser.add_argument("--store", required=True, type=Path, help="where finished chunks are kept")
    parser.add_argument("--out", required=True, type=Path, help="the shard's directory")
    cli.run(main, parser)
