"""A disk that is full or cannot be written is said in a sentence; nothing half-written has a final name."""

import os
import resource
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import matplotlib.figure
import numpy as np
import pyarrow as pa
import pytest
import running
import torch
from killing import tables

from deltap.errors import DeltapError
from deltap.figures.save import save
from deltap.files import write_json, write_text
from deltap.lock import locked
from deltap.probe import Probe, write_probes
from deltap.store import Store
from deltap.tables import QUESTIONS, write_table
from deltap.tensors import write_activations

LARGE = 3_000_000  # bytes, more than the small disk has


def mounted(folder: Path, *options: str) -> bool:
    """Mount a small file system in memory; tell whether that is allowed here."""
    folder.mkdir(exist_ok=True)
    return not subprocess.run(
        ["mount", "-t", "tmpfs", "-o", ",".join(options), "tmpfs", str(folder)], capture_output=True
    ).returncode


@pytest.fixture
def small(tmp_path) -> Iterator[Path]:
    """A file system of a megabyte; where nobody may mount one, a folder of a process that may write no larger file."""
    folder = tmp_path / "small"
    if mounted(folder, "size=1m"):
        yield folder
        subprocess.run(["umount", "--lazy", str(folder)], check=True)
        return
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1_000_000, before[1]))
    yield folder
    resource.setrlimit(resource.RLIMIT_FSIZE, before)


def _table(path: Path) -> None:
    random = np.random.default_rng(0)
    texts = [random.bytes(500).hex() for _ in range(LARGE // 500)]
    write_table(path, pa.table({name: texts if name == "question" else pa.nulls(len(texts), QUESTIONS.field(name).type)
                                for name in QUESTIONS.names}), QUESTIONS, {})  # fmt: skip


def _figure(path: Path) -> None:
    figure = matplotlib.figure.Figure(figsize=(9, 9), dpi=300)
    figure.add_axes((0, 0, 1, 1)).imshow(np.random.default_rng(0).random((2000, 2000)))
    save(figure, path, "{}")


WRITERS = {
    "table.parquet": _table,
    "activations.safetensors": lambda path: write_activations(path, [torch.rand(4, LARGE // 16, 1)], {}),
    "probes.safetensors": lambda path: write_probes(
        path, {("attn", "last", 0): Probe((np.random.default_rng(0).random((LARGE // 8, 1)),), (np.zeros(1),))}, {}
    ),
    "chunk.safetensors": lambda path: Store(path.parent).write(path, {"clean": torch.rand(LARGE // 4)}, []),
    "report.md": lambda path: write_text(path, "x" * LARGE),
    "verdict.json": lambda path: write_json(path, ["x" * LARGE]),
    "figure.png": _figure,
    "figure.pdf": _figure,
}


@pytest.mark.parametrize("name", WRITERS)
def test_a_full_disk_is_said_with_the_remedy_and_leaves_what_was_there(name, small):
    path = small / name
    path.write_bytes(b"the last one")
    with pytest.raises(DeltapError, match=rf"{name}: cannot be written: (No space left|File too large).*start again"):
        WRITERS[name](path)
    assert path.read_bytes() == b"the last one"
    assert [entry.name for entry in small.iterdir()] == [name]


def test_a_disk_without_room_for_a_lock_is_said_with_the_remedy_and_keeps_no_draft(small):
    filler, limits = small / "filler", resource.getrlimit(resource.RLIMIT_FSIZE)
    try:
        with filler.open("wb", buffering=0) as stream, suppress(OSError):
            while stream.write(bytes(4096)):
                pass
        if os.statvfs(small).f_bavail:  # there was a limit on files, and no small disk
            resource.setrlimit(resource.RLIMIT_FSIZE, (1, limits[1]))
        lock = small / "series.lock"
        with pytest.raises(DeltapError, match=r"series\.lock: cannot be written: .*start again"), locked(lock, "m/d"):
            pytest.fail("it was not written")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert [path.name for path in small.iterdir()] == ["filler"]


@pytest.mark.parametrize("name", WRITERS)
def test_a_disk_that_cannot_be_written_is_said_with_the_remedy(name, tmp_path):
    folder = tmp_path / "fixed"
    if not mounted(folder, "ro", "size=1m"):
        pytest.skip("no file system may be mounted here")
    try:
        with pytest.raises(DeltapError, match=rf"{name}: cannot be written: Read-only file system; let the path lie"):
            WRITERS[name](folder / name)
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


@pytest.mark.skipif(os.geteuid() != 0, reason="mounts a file system")
def test_a_run_goes_on_once_there_is_room(configfile, tmp_path):
    """The disk of the results fills up in the middle of the run; it is made larger; the same command ends it."""
    roomy, cramped = tmp_path / "roomy", tmp_path / "cramped"
    roomy.mkdir()
    running.snakemake(roomy, configfile)
    used = sum(path.stat().st_size for path in (roomy / "results").rglob("*") if path.is_file())
    if not mounted(cramped, f"size={used // 2}"):
        pytest.skip("no file system may be mounted here")
    try:
        full = running.snakemake(cramped, configfile, check=False)
        assert full.returncode
        assert "cannot be written: No space left on device; make room, and start again" in full.stdout
        assert "unexpected error" not in full.stdout  # Snakemake's own records of times may fail in its own words
        subprocess.run(["mount", "-o", "remount,size=1g", str(cramped)], check=True)
        running.snakemake(cramped, configfile, "--rerun-incomplete")
        assert tables(cramped) == tables(roomy)
    finally:
        subprocess.run(["umount", "--lazy", str(cramped)], check=True)
