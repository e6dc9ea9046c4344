"""What one series measured at one site and position, as the controls take it: activations, labels, probes."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from deltap.errors import DeltapError
from deltap.probe import Probe, read_probes, reference_layer
from deltap.probes import Rows
from deltap.samples import Samples, by_split
from deltap.settings import ControlSettings, ProbeSettings
from deltap.tables import INTERVENTIONS, PROBES, read_table
from deltap.tensors import ActivationFiles, activation_files


@dataclass(frozen=True)
class Cut:
    """The activations of the test samples under another intervention, one draw of it."""

    files: ActivationFiles
    rows: np.ndarray
    """The row of each test sample, -1 where it has none; shape (samples,)."""

    def at(self, place: int) -> np.ndarray:
        """Return the test samples' activations at ``place`` of the files' first dimension, shape (samples, hidden).

        NaN where a sample was not measured.
        """
        there = self.rows >= 0
        activations = self.files.layer(place)
        found = np.full((len(self.rows), activations.shape[1]), np.nan, dtype=activations.dtype)
        found[there] = activations[self.rows[there]]
        return found


@dataclass(frozen=True)
class Measured:
    """One series at one site and position. Test samples are in the order of ``question_ids``."""

    clean: ActivationFiles
    rows: Rows
    """Each split's rows in the clean activations."""
    truthful: Rows
    """Each split's labels."""
    cut: Cut
    """The exact question cut, in every layer."""
    question_ids: np.ndarray
    labels: np.ndarray
    """Of the test samples, as in LABELS."""
    probes: Sequence[Probe]
    """One for each layer."""
    k_star: int
    regularisation: float
    """The probes' strength."""
    probe_settings: ProbeSettings
    aurocs: np.ndarray
    """Of the probes on the validation split, shape (layers,)."""
    interventions: Mapping[tuple[str, int], Cut] = field(default_factory=dict)
    """By intervention and draw."""
    table: pa.Table | None = None
    """INTERVENTIONS: what was cut in each of them; None where there are none."""

    @property
    def layers(self) -> int:
        """Number of layers."""
        return len(self.probes)

    @property
    def samples(self) -> int:
        """Number of test samples."""
        return len(self.question_ids)

    @property
    def whole(self) -> dict[tuple[str, int], Cut]:
        """The interventions that have an activation for each layer: all but windows and heads."""
        return {key: cut for key, cut in self.interventions.items() if not key[0].startswith(("window_", "heads"))}


def read_measured(
    samples: Samples,
    settings: ControlSettings,
    probe_settings: ProbeSettings,
    *,
    probes: Path,
    scores: Path,
    clean: Sequence[Path],
    knockout: Sequence[Path],
    interventions: Sequence[Path] = (),
    cuts: Sequence[Path] = (),
) -> Measured | None:
    """Read what one series measured at the controls' site and position; None where it has no probes.

    Of shards all files are given, in their order: ``clean`` and ``knockout`` activations, the tables ``interventions``
    and the activations of these, ``cuts``.
    """
    site, position = settings.site, settings.position
    trained = read_probes(probes)
    if (site, position, 0) not in trained:
        return None
    rows = read_table(scores, PROBES).to_pylist()
    validation = [row for row in rows if (row["site"], row["position"], row["split"]) == (site, position, "validation")]
    aurocs = np.array([row["auroc"] for row in validation], dtype=float)
    clean_files, cut_files = (
        activation_files(paths, name, site, position) for name, paths in (("clean", clean), ("knockout", knockout))
    )
    splits = by_split(samples)
    test = splits["test"]
    table = None
    others: dict[tuple[str, int], Cut] = {}
    if interventions:
        table = pa.concat_tables([read_table(path, INTERVENTIONS) for path in interventions]).unify_dictionaries()
        keys = table.group_by(["intervention", "draw"]).aggregate([]).to_pylist()
        for name, draw in sorted((str(key["intervention"]), int(key["draw"])) for key in keys):
            files = activation_files(cuts, f"{name}.{draw}", site, position)
            others[name, draw] = Cut(files, _rows(table, name, draw, files, test["question_id"]))
    return Measured(
        clean=clean_files,
        rows={split: clean_files.rows_of(part["shard"], part["clean_row"]) for split, part in splits.items()},
        truthful={split: part["truthful"] for split, part in splits.items()},
        cut=Cut(cut_files, cut_files.rows_of(test["shard"], test["knockout_row"])),
        question_ids=test["question_id"],
        labels=test["label"],
        probes=[trained[site, position, layer] for layer in range(len(validation))],
        k_star=reference_layer([row["layer"] for row in validation], [row["auroc"] for row in validation]),
        regularisation=validation[0]["regularisation"],
        probe_settings=probe_settings,
        aurocs=aurocs,
        interventions=others,
        table=table,
    )


def _rows(table: pa.Table, name: str, draw: int, files: ActivationFiles, question_ids: np.ndarray) -> np.ndarray:
    """Return the row of each test sample in an intervention's files, -1 where it has none."""
    chosen = table.filter(
        pc.and_(pc.equal(table["intervention"].cast(pa.string()), name), pc.equal(table["draw"], draw))
    )
    places = files.rows_of(chosen["shard"].to_numpy(), chosen["row"].to_numpy())
    known = dict(zip(chosen["question_id"].to_pylist(), places.tolist(), strict=True))
    rows = np.array([known.get(identifier, -1) for identifier in question_ids], dtype=int)
    if known and len(rows) and not (rows >= 0).any():
        raise DeltapError(f"{name}.{draw}: no test sample of the labels is among the {len(known)} that were measured")
    return rows
