"""Files as the pipeline's stages write them, of any size and without a model: activations, labels, tidy tables."""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import torch

from deltap.anchors import anchor, predicted
from deltap.delta_p import tidy
from deltap.settings import ANCHORS as ANCHOR_NAMES
from deltap.settings import DeltaPStage, Grouping
from deltap.tables import ANCHORS, DELTA_P, LABELS, write_table
from deltap.tensors import write_activations

SPLITS = {"train": 0.5, "validation": 0.15, "test": 0.35}
METADATA = {"anchors": list(ANCHOR_NAMES)}


class Layers:
    """Activations with a weak direction of truth, drawn layer by layer so that the file may be larger than memory."""

    def __init__(self, layers: int, truthful: np.ndarray, hidden: int, seed: int) -> None:
        self.shape = (layers, len(truthful), hidden)
        self._sign = torch.from_numpy(np.where(truthful, 1.0, -1.0)).float()
        self._seed = seed

    def __getitem__(self, layers: slice) -> torch.Tensor:
        """Return a few layers, bfloat16: correlated noise, and 2 of its standard deviations between the classes."""
        return torch.stack([self._layer(layer) for layer in range(*layers.indices(self.shape[0]))])

    def _layer(self, layer: int) -> torch.Tensor:
        generator = torch.Generator().manual_seed(1000 * self._seed + layer)
        _, samples, hidden = self.shape
        direction = torch.nn.functional.normalize(torch.randn(hidden, generator=generator), dim=0)
        common = torch.randn(64, hidden, generator=generator)
        x = torch.randn(samples, 64, generator=generator) @ common
        x += torch.randn(samples, hidden, generator=generator) + self._sign[:, None] * direction
        return x.bfloat16()


def labels(path: Path, samples: int, seed: int = 0) -> np.ndarray:
    """Write a LABELS table of one series, split in order; return which samples are truthful."""
    truthful = np.random.default_rng(seed).random(samples) < 0.5
    ends = np.cumsum([round(share * samples) for share in SPLITS.values()])
    split = np.repeat(list(SPLITS), np.diff(ends, prepend=0))
    rows = [
        {
            **dict.fromkeys(LABELS.names),
            **{"model": "model", "dataset": "dataset", "extractor": "auto", "question_id": f"q{index}"},
            **{"split": split[index], "label": "truthful" if truthful[index] else "hallucinated"},
            **{"shard": 0, "clean_row": index},
        }
        for index in range(samples)
    ]
    write_table(path, rows, LABELS, {})
    return truthful


def activations(folder: Path, pairs: Sequence[tuple[str, str]], layers: int, truthful: np.ndarray, hidden: int) -> None:
    """Write the clean activations of a shard for each pair of site and position."""
    for seed, (site, position) in enumerate(pairs):
        write_activations(folder / f"clean.{site}.{position}.safetensors", [Layers(layers, truthful, hidden, seed)], {})


def anchors_of(constants: dict[str, str], pairs: Sequence[tuple[str, str]], layers: int, samples: int) -> pa.Table:
    """Return the ANCHORS rows of one series; a fifth of its samples flip."""
    generator = np.random.default_rng(int.from_bytes(json.dumps(constants).encode()) % 2**32)
    count = layers * samples
    ids = np.array([f"{constants['dataset']}-{index:06d}" for index in range(samples)])
    label = np.where(generator.random(samples) < 0.5, "truthful", "hallucinated")
    parts = []
    for site, position in pairs:
        p_clean, noise = generator.random((2, layers, samples)).astype(np.float32)
        p_knockout = np.where(noise < 0.2, 1 - p_clean, p_clean)
        flips = predicted(p_clean) != predicted(p_knockout)
        columns = {
            **{name: np.repeat(value, count) for name, value in constants.items()},
            **{"site": np.repeat(site, count), "position": np.repeat(position, count)},
            "layer": np.repeat(np.arange(layers), samples),
            "question_id": np.tile(ids, layers),
            "label": np.tile(label, layers),
            "p_clean": p_clean.ravel(),
            "p_knockout": p_knockout.ravel(),
            "predicted": predicted(p_clean).ravel(),
            "predicted_knockout": predicted(p_knockout).ravel(),
            "flips": flips.ravel(),
            "near_threshold": np.zeros(count, dtype=bool),
            "k_star": np.repeat(layers // 2, count),
            "anchor_reference": np.tile(anchor(flips[layers // 2]), layers),
        }
        parts.append(pa.table(columns).select(ANCHORS.names).cast(ANCHORS))
    return pa.concat_tables(parts)


def tables(
    folder: Path,
    models: int,
    datasets: int,
    pairs: Sequence[tuple[str, str]],
    layers: int,
    samples: int,
    groupings: tuple[Grouping, ...],
) -> Iterator[tuple[str, Path, int]]:
    """Write the parts that ``merge`` takes; yield the table of each, its path and its number of rows."""
    for model in range(models):
        for dataset in range(datasets):
            constants = {"model": f"model-{model}", "dataset": f"dataset-{dataset}", "extractor": "auto"}
            rows = anchors_of(constants, pairs, layers, samples)
            place = folder / f"{constants['model']}.{constants['dataset']}"
            path = place / "anchors.parquet"
            write_table(path, rows, ANCHORS, METADATA)
            yield "anchors", path, len(rows)
            for name in ANCHOR_NAMES:
                stage = DeltaPStage(anchor=name, groupings=groupings, reference_class="predicted")
                part = tidy(rows, stage)
                path = place / f"{name}.parquet"
                write_table(path, part, DELTA_P, METADATA)
                yield "delta_p", path, len(part)
