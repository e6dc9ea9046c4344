"""What it changes that train samples are read while they are answered, and test samples in passes: rounding.

Run by hand after ``make demo``: ``python -m benchmarks.rounding``. With the demo's model (few-shot) and its PopQA-style
questions, probes are trained once on activations that came up with the answers and once on those of passes, and read
the same test samples.
"""

import tempfile
from pathlib import Path

import numpy as np

from deltap.generation import Generated, Generation
from deltap.inference import Inference
from deltap.models.language_model import load_language_model
from deltap.probes import fit
from deltap.settings import InferenceStage, ProbeSettings
from deltap.store import Store
from deltap.tables import LABELS, QUESTIONS, read_metadata, read_table

RESULTS = Path("results/demo")
SERIES = ("smollm2-135m-few-shot", "popqa-style")
STRENGTH = 0.01


def main() -> None:
    """Print the largest difference of states and probabilities, and how many verdicts change."""
    made_by = read_metadata(RESULTS / "inference" / "/".join(SERIES) / "auto/0/answers.parquet")["provenance"]
    asked = read_table(RESULTS / "questions" / f"{SERIES[1]}.parquet", QUESTIONS).to_pylist()
    labels = {
        row["question_id"]: row["label"]
        for row in read_table(RESULTS / "answers.parquet", LABELS).to_pylist()
        if (row["model"], row["dataset"]) == SERIES
    }
    for dtype in ("float32", "bfloat16"):
        settings = {**made_by["settings"], "entry": {**made_by["settings"]["entry"], "dtype": dtype}}
        print(dtype, compare(InferenceStage.model_validate(settings), asked, labels))


def compare(stage: InferenceStage, asked: list[dict], labels: dict[str, str]) -> str:
    """Return what differs between the two ways, in words."""
    (directory,) = (path.parent for path in Path("models").glob("*/config.json"))
    model = load_language_model(directory, stage.entry, stage.prompt)
    with tempfile.TemporaryDirectory() as folder:
        generation = Generation(model, *SERIES, Store(Path(folder)), {})
        here, rows = Inference(generation, stage).chunk(_samples(generation, stage, asked), lambda done: None)
        (said,) = generation.fresh().values()
        answers = {row["question_id"]: Generated(item["ids"]) for row, item in zip(asked, said, strict=True)}
        apart = Generation(model, *SERIES, Store(Path(folder)), {}, None, answers)
        passes, _ = Inference(apart, stage).chunk(_samples(apart, stage, asked), lambda done: None)

    usable = [row for row in rows if row["exclusion"] is None]
    truthful = np.array([labels[row["question_id"]] == "truthful" for row in usable])
    train, test = (np.array([row["split"] == split for row in usable]) for split in ("train", "test"))
    states, differences, changed = 0.0, [], 0
    for name in (name for name in passes if name.startswith("clean/")):
        for layer in range(len(passes[name])):
            ways = [tensors[name][layer].float().numpy() for tensors in (here, passes)]
            states = max(states, float(_share(*ways).max()))
            probes = [fit(x[train], truthful[train], (STRENGTH,), ProbeSettings())[0].probe for x in ways]
            knockout = passes[name.replace("clean", "knockout")][layer].float().numpy()
            for read in (ways[1][test], knockout):
                one, other = (probe.probability(read) for probe in probes)
                differences.append(np.abs(one - other))
                changed += int(((one >= 0.5) != (other >= 0.5)).sum())
    every = np.concatenate(differences)
    return (
        f"states: at most {states:.2g} of their length; probability: at most {every.max():.4f}, 99.9th percentile "
        f"{np.percentile(every, 99.9):.4f}; verdicts that change: {changed} of {len(every):,}"
    )


def _samples(generation: Generation, stage: InferenceStage, asked: list[dict]) -> list:
    return Inference(generation, stage).prepare(asked)


def _share(one: np.ndarray, other: np.ndarray) -> np.ndarray:
    return np.linalg.norm(one - other, axis=-1) / np.linalg.norm(other, axis=-1)


if __name__ == "__main__":
    main()
