"""The stages of a run one after another, by their own scripts but in this process, on a tiny model."""

import importlib.util
import json
from argparse import Namespace
from functools import cache
from pathlib import Path
from types import ModuleType, SimpleNamespace

import tiny

ROOT = Path(__file__).parents[1]
ENTRY = {"kind": "base", "dtype": "float32", "device": "cpu", "max_new_tokens": 12}
SITES, POSITIONS = ("attn",), ("exact_answer_last",)
SERIES = {"model": "tiny", "dataset": "capitals", "extractor": "auto"}


@cache
def script(name: str) -> ModuleType:
    """Return the module of a script."""
    spec = importlib.util.spec_from_file_location(f"script_{name}", ROOT / "scripts" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def run(name: str, **options: object) -> None:
    """Call a script's ``main`` with its options; settings may be given as a mapping."""
    settings = options.get("settings")
    if isinstance(settings, dict):
        options["settings"] = json.dumps(settings)
    script(name).main(Namespace(**options))


def inference(folder: Path, shard: int, *, shards: int = 2, **changes: object) -> Path:
    """Run the inference of one shard and return its folder; ``changes`` to the model's entry."""
    settings = {
        **SERIES,
        "entry": {**ENTRY, **changes},
        "prompt": {},
        "inference": {"shards": shards, "sites": SITES, "positions": POSITIONS, "chunk_questions": 8},
        "bad_rows": 0,
    }
    out = folder / "inference" / str(shard)
    run("inference", settings=settings, questions=folder / "questions.parquet", model=folder / "model", generated=None,
        llm_spans=None, given_answers=[], given_spans=[], shard=shard, store=folder / "chunks", out=out)  # fmt: skip
    return out


def questions(folder: Path, number: int = 64) -> Path:
    """Write questions, and a file of labels that gives every other one to each class."""
    rows = [{"question_id": f"q{i}", "question": f"What is the capital of Land{i}ia?", "answers": [f"City{i}"]}
            for i in range(number)]  # fmt: skip
    (folder / "source.jsonl").write_text("\n".join(map(json.dumps, rows)))
    labels = [{"question_id": f"q{i}", "label": "truthful" if i % 2 else "hallucinated"} for i in range(number)]
    (folder / "labels.jsonl").write_text("\n".join(map(json.dumps, labels)))
    splits = {"train": 0.5, "validation": 0.25, "test": 0.25}
    settings = {"dataset": "capitals", "entry": {"path": str(folder / "source.jsonl")}, "examples": [],
                "questions": {"splits": splits}}  # fmt: skip
    run("questions", settings=settings, manifest=None, out=folder / "questions.parquet")
    return folder / "questions.parquet"


def labels(folder: Path, name: str = "labels") -> Path:
    """Label the answers of both shards."""
    out = folder / f"{name}.parquet"
    run("labels", settings={"labels": {}, "bad_rows": 0}, judgements=None, given_labels=[folder / "labels.jsonl"],
        answers=[folder / "inference" / str(shard) / "answers.parquet" for shard in (0, 1)], out=out)  # fmt: skip
    return out


def activations(folder: Path, name: str) -> list[Path]:
    """Return the activation files of both shards."""
    return [folder / "inference" / str(shard) / f"{name}.attn.exact_answer_last.safetensors" for shard in (0, 1)]


def probes(folder: Path, name: str = "probes", **settings: object) -> Path:
    """Train the probes; their scores lie beside them."""
    out = folder / f"{name}.safetensors"
    stage = {"probe": {"regularisation": [0.01, 1.0], **settings}, "sites": SITES, "positions": POSITIONS}
    run("probes", settings=stage, labels=folder / "labels.parquet", clean=activations(folder, "clean"), jobs=1, out=out,
        scores=out.with_suffix(".scores.parquet"))  # fmt: skip
    return out


def anchors(folder: Path, probes: Path | None = None, scores: Path | None = None) -> Path:
    """Apply the probes to the test samples."""
    out, probes = folder / "anchors.parquet", probes or folder / "probes.safetensors"
    scores = scores or probes.with_suffix(".scores.parquet")
    run("anchors", labels=folder / "labels.parquet", probes=probes, scores=scores,
        clean=activations(folder, "clean"), knockout=activations(folder, "knockout"), out=out)  # fmt: skip
    return out


def tables(folder: Path) -> None:
    """Make everything from the anchors to the verdict."""
    parts = []
    for anchor in ("q_anchored", "a_anchored"):
        parts.append(folder / f"{anchor}.parquet")
        stage = {"anchor": anchor, "groupings": ["per_layer", "reference"], "reference_class": "predicted"}
        run("delta_p", settings=stage, anchors=folder / "anchors.parquet", out=parts[-1])
    run("merge", table="delta_p", parts=parts, metadata=json.dumps({"labels": {}}), out=folder / "delta_p.parquet")
    run("summarise", settings="{}", table=folder / "delta_p.parquet", out=folder / "delta_p_summary.parquet",
        csv=folder / "delta_p_summary.csv")  # fmt: skip
    run("verdict", settings={"extractor": "auto", "verdict": {}, "bootstrap": {}}, table=folder / "delta_p.parquet",
        out=folder / "verdict.md", json=folder / "verdict.json")  # fmt: skip


def all_stages(folder: Path) -> SimpleNamespace:
    """Run everything and return where what lies."""
    tiny.save(folder / "model", "llama")
    questions(folder)
    for shard in (0, 1):
        inference(folder, shard)
    labels(folder)
    probes(folder)
    anchors(folder)
    tables(folder)
    return SimpleNamespace(folder=folder, chunks=sorted((folder / "chunks").rglob("*.safetensors")))
