"""Cut something else than the exact question in the test samples of one shard, and read their activations.

Writes what was cut (INTERVENTIONS) and one safetensors file of activations per intervention and draw:
<out>/interventions.parquet, <out>/<intervention>.<draw>.<site>.<position>.safetensors. Their first dimension is the
layer that is read; of windows, the window's first layer; of heads, every head of the first layer, then of the next.
"""

import argparse
from pathlib import Path

import transformers

from deltap import cli
from deltap.code import code_digest
from deltap.interventions.job import Interventions, read_answers, read_k_star, run_shard, shard_rows, steps
from deltap.models.check import check_model, check_windows
from deltap.models.language_model import load_language_model
from deltap.models.load import engine_facts
from deltap.provenance import provenance
from deltap.settings import InterventionsStage
from deltap.store import Store, StoredTensor
from deltap.tables import INTERVENTIONS, read_metadata, write_table
from deltap.tensors import write_activations


def main(options: argparse.Namespace) -> None:
    """Run one interventions job, as the only one that writes its chunks."""
    stage = cli.settings(InterventionsStage, options.settings)
    series = f"interventions/{stage.model}/{stage.dataset}/{stage.extractor}/{options.shard}"
    what = [stage.model_dump(mode="json"), code_digest(__file__), str(options.model.resolve())]
    with Store(options.store).lock(series, what):
        intervene(stage, options)


def intervene(stage: InterventionsStage, options: argparse.Namespace) -> None:
    """Cut what is to be cut and read the activations."""
    transformers.utils.logging.disable_progress_bar()
    model = load_language_model(options.model, stage.entry, stage.prompt)
    check_model(model.engine, model.prompter, (stage.site,))
    if stage.interventions.restarted:
        check_windows(model.engine, model.prompter, (stage.site,))
    facts = {"model_revision": model.revision, **engine_facts(model.engine, stage.entry)}
    inputs = [read_metadata(path).get("provenance") for path in (options.answers[options.shard], options.scores)]
    made_by = provenance(__file__, stage.model_dump(mode="json"), inputs=inputs, **facts)
    identity = {
        **facts,
        "code": made_by["code"],
        "versions": {name: made_by["versions"][name] for name in ("torch", "transformers", "tokenizers")},
    }
    k_star = read_k_star(options.scores, stage.site, stage.position)
    what = f"{stage.model}, {stage.dataset}"
    if k_star is None and stage.interventions.restarted:
        cli.logger.warning("%s: no probes, and so no reference layer at which windows and heads are read", what)
    job = Interventions(model, stage, k_star)
    rows, tested = read_answers(options.answers, options.shard)
    with cli.progress((), f"{what} (other cuts)", total=steps(job, rows, tested), unit="pass") as bar:
        chunks = run_shard(job, rows, tested, Store(options.store), identity, bar.update)

    metadata = {"provenance": made_by}
    drawn = [f"{name}.{draw}" for name, draws in stage.interventions.draws.items() for draw in range(draws)]
    for name in stage.interventions.files:
        parts = [StoredTensor(path, name) for path in chunks["cuts" if name in drawn else "restarted"]]
        write_activations(options.out / f"{name}.{stage.site}.{stage.position}.safetensors", parts, metadata)
    found = list(shard_rows([*chunks["cuts"], *chunks["restarted"]], options.shard))
    write_table(options.out / "interventions.parquet", found, INTERVENTIONS, metadata)
    cli.logger.info(
        "%d samples, %d cuts%s",
        len({row["question_id"] for row in found}),
        len(found),
        cli.counts(row["intervention"] for row in found),
    )


if __name__ == "__main__":
    parser = cli.parser(__doc__)
    parser.add_argument("--settings", required=True, help="settings.InterventionsStage: JSON, or a file's path")
    parser.add_argument("--answers", required=True, type=Path, nargs="+", help="the answers of every shard (Parquet)")
    parser.add_argument("--scores", required=True, type=Path, help="the probes' scores (Parquet), for k*")
    parser.add_argument("--model", required=True, type=Path, help="the model's directory")
    parser.add_argument("--shard", type=int, default=0, help="which shard, from 0")
    parser.add_argument("--store", required=True, type=Path, help="where finished chunks are kept")
    parser.add_argument("--out", required=True, type=Path, help="the shard's directory")
    cli.run(main, parser)
