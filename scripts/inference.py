"""Ask a model the questions of one shard and read its activations, clean and under attention knockout.

Writes the answers (ANSWERS, with both exact spans) and one safetensors file of activations per pass, site and position:
<out>/answers.parquet, <out>/clean.<site>.<position>.safetensors, <out>/knockout.<site>.<position>.safetensors.
"""

import argparse
from pathlib import Path

import pyarrow.compute as pc
import transformers

from deltap import cli
from deltap.inference import Inference, run_shard, shard_answers, write_shard
from deltap.models.check import check_model
from deltap.models.directory import revision
from deltap.models.load import end_ids, engine_facts, load
from deltap.models.prompts import Prompter
from deltap.provenance import provenance
from deltap.questions.hashes import shard_of
from deltap.settings import InferenceStage
from deltap.store import Store
from deltap.tables import ANSWERS, QUESTIONS, read_metadata, read_table, write_table


def main(options: argparse.Namespace) -> None:
    """Run one inference job."""
    stage = cli.settings(InferenceStage, options.settings)
    transformers.utils.logging.disable_progress_bar()
    questions = read_table(options.questions, QUESTIONS)
    shards = stage.inference.shards
    questions = questions.filter(
        pc.equal([shard_of(text, shards) for text in questions["hash"].to_pylist()], options.shard)
    )

    tokenizer, engine = load(options.model, stage.entry)
    if engine.follow():
        return
    prompter = Prompter(tokenizer, stage.entry.kind, stage.prompt, stage.entry.thinking)
    check_model(engine, prompter, stage.inference.sites)
    ends = end_ids(tokenizer, engine, at_newline=stage.entry.kind == "base")
    inference = Inference(engine, tokenizer, prompter, ends, stage)

    facts = {"model_revision": revision(options.model), **engine_facts(engine, stage.entry)}
    inputs = read_metadata(options.questions).get("provenance")
    made_by = provenance(__file__, stage.model_dump(mode="json"), inputs=inputs, **facts)
    # What a chunk depends on; how the questions are dealt out does not matter.
    identity = {
        **facts,
        "code": made_by["code"],
        "versions": {name: made_by["versions"][name] for name in ("torch", "transformers", "tokenizers")},
        "settings": stage.model_dump(mode="json", exclude={"inference": {"shards", "chunk_questions"}}),
    }
    description = f"{stage.model}, {stage.dataset}"
    with cli.progress((), description, total=3 * len(questions), unit="pass") as bar:
        chunks = run_shard(inference, questions, Store(options.store), identity, bar.update)
    engine.close()

    metadata = {"provenance": made_by}
    passes = [
        f"{name}/{site}/{position}"
        for name in ("clean", "knockout")
        for site in stage.inference.sites
        for position in stage.inference.positions
    ]
    write_shard(chunks, {name: options.out / f"{name.replace('/', '.')}.safetensors" for name in passes}, metadata)
    rows = shard_answers(chunks)
    write_table(options.out / "answers.parquet", rows, ANSWERS, metadata)
    excluded = [row["exclusion"] for row in rows if row["exclusion"]]
    cli.logger.info("%d answers, %d without activations%s", len(rows), len(excluded), cli.counts(excluded))


if __name__ == "__main__":
    parser = cli.parser(__doc__)
    parser.add_argument("--settings", required=True, help="settings.InferenceStage: JSON, or a file's path")
    parser.add_argument("--questions", required=True, type=Path, help="the data set's questions (Parquet)")
    parser.add_argument("--model", required=True, type=Path, help="the model's directory")
    parser.add_argument("--shard", type=int, default=0, help="which shard, from 0")
    parser.add_argument("--store", required=True, type=Path, help="where finished chunks are kept")
    parser.add_argument("--out", required=True, type=Path, help="the shard's directory")
    cli.run(main, parser)
