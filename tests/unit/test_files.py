"""Whole files, tables and activation files."""

import json
import os
import stat
import subprocess
import sys

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file

from deltap.errors import DeltapError, nearest
from deltap.files import contents, unchanged, whole, write_text
from deltap.store import Store, StoredTensor
from deltap.tables import SUMMARY, check_schema, iterate_table, read_metadata, read_table, write_batches, write_table
from deltap.tensors import ActivationFiles, activation_files, write_activations

ROW = {
    "model": "m", "dataset": "d", "extractor": "auto", "grouping": "per_layer", "anchor": "q_anchored",
    "site": "attn", "position": "last", "layer": 0, "n": 0, "mean": None, "ci_low": None, "ci_high": None,
}  # fmt: skip


def fail_half_way(path):
    with whole(path) as temporary:
        temporary.write_text("half")
        raise RuntimeError


def test_a_file_appears_whole_or_not_at_all(tmp_path):
    path = tmp_path / "deep" / "file.txt"
    with pytest.raises(RuntimeError):
        fail_half_way(path)
    assert list(path.parent.iterdir()) == []
    write_text(path, "first")
    with pytest.raises(RuntimeError):
        fail_half_way(path)
    assert path.read_text() == "first"
    assert list(path.parent.iterdir()) == [path]


def test_files_are_readable_for_those_whom_the_umask_allows(tmp_path):
    write_activations(tmp_path / "x.safetensors", [torch.zeros(1, 1, 1)], {})
    assert stat.S_IMODE((tmp_path / "x.safetensors").stat().st_mode) & 0o044


def test_a_table_keeps_rows_and_metadata_and_repeats_its_bytes(tmp_path):
    a, b = tmp_path / "a.parquet", tmp_path / "b.parquet"
    for path in (a, b):
        write_table(path, [ROW, {**ROW, "layer": 1}], SUMMARY, {"labels": {"é": 1}})
    assert a.read_bytes() == b.read_bytes()
    assert read_table(a, SUMMARY).to_pylist()[1]["layer"] == 1
    assert read_metadata(a) == {"labels": {"é": 1}}


def test_parts_are_written_one_after_another(tmp_path):
    parts = [pa.Table.from_pylist([{**ROW, "model": name}], SUMMARY) for name in "abc"]
    write_batches(tmp_path / "t.parquet", parts, SUMMARY, {})
    assert read_table(tmp_path / "t.parquet", SUMMARY)["model"].to_pylist() == ["a", "b", "c"]
    assert len(list(iterate_table(tmp_path / "t.parquet", SUMMARY))) == 3


def test_a_table_with_missing_or_wrong_columns_is_refused_by_name(tmp_path):
    table = pa.Table.from_pylist([ROW], SUMMARY)
    pq.write_table(table.drop_columns(["mean"]), tmp_path / "missing.parquet")
    with pytest.raises(DeltapError, match=r"missing\.parquet: missing columns mean"):
        check_schema(tmp_path / "missing.parquet", SUMMARY)
    wrong = table.set_column(table.schema.get_field_index("layer"), "layer", pa.array(["zero"]))
    pq.write_table(wrong, tmp_path / "wrong.parquet")
    with pytest.raises(DeltapError, match="layer is string, expected int32"):
        check_schema(tmp_path / "wrong.parquet", SUMMARY)


def test_tables_that_are_not_there_or_not_parquet_are_refused_by_name(tmp_path):
    with pytest.raises(DeltapError, match="no such table"):
        read_table(tmp_path / "none.parquet", SUMMARY)
    (tmp_path / "text.parquet").write_text("hello")
    with pytest.raises(DeltapError, match=r"text\.parquet: damaged"):
        read_table(tmp_path / "text.parquet", SUMMARY)


def test_activations_of_shards_are_read_as_one(tmp_path):
    parts = [torch.randn(3, n, 4).to(torch.bfloat16) for n in (2, 0, 5)]
    paths = []
    for index, part in enumerate(parts):
        paths.append(tmp_path / str(index) / "clean.attn.last.safetensors")
        write_activations(paths[-1], [part], {"a": 1})
    files = ActivationFiles(paths)
    assert (files.layers, files.rows, files.hidden) == (3, 7, 4)
    for layer in range(3):
        assert torch.equal(torch.from_numpy(files.layer(layer)), torch.cat(parts, dim=1)[layer].float())
    assert files.rows_of(np.array([0, 2, 2]), np.array([1, 0, 4])).tolist() == [1, 2, 6]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_activations_are_read_as_torch_would_read_them(tmp_path, dtype):
    part = torch.tensor([0.0, -0.0, 1 / 3, -65504, 6e-8, 65504]).to(dtype).reshape(2, 3, 1)
    write_activations(tmp_path / "clean.attn.last.safetensors", [part], {})
    files = ActivationFiles([tmp_path / "clean.attn.last.safetensors"])
    for layer in range(2):
        read = torch.from_numpy(files.layer(layer))
        assert torch.equal(read.view(torch.int32), part[layer].float().view(torch.int32))


def test_the_short_jobs_that_read_activations_load_no_torch():
    imports = "import sys, deltap.probes, deltap.anchors, deltap.probe, deltap.tensors; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", imports], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


@pytest.mark.parametrize("at_once", [1, 100, 10_000])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_parts_of_chunks_are_written_as_one_file_a_few_layers_at_a_time(tmp_path, monkeypatch, at_once, dtype):
    monkeypatch.setattr("deltap.tensors._AT_ONCE", at_once)
    parts = [torch.randn(5, n, 4).to(dtype) for n in (2, 0, 3)]
    store = Store(tmp_path)
    for index, part in enumerate(parts):
        store.write(tmp_path / str(index), {"x": part}, [])
    path = tmp_path / "clean.attn.last.safetensors"
    write_activations(path, [StoredTensor(tmp_path / str(index), "x") for index in range(3)], {"a": "ü"})
    assert torch.equal(load_file(path)["activations"], torch.cat(parts, dim=1))
    with safe_open(path, "pt") as file:
        assert json.loads(file.metadata()["deltap"]) == {"a": "ü"}


def test_shards_of_different_models_and_damaged_files_are_refused(tmp_path):
    for name, shape in (("a", (3, 2, 4)), ("b", (3, 2, 5))):
        write_activations(tmp_path / name, [torch.zeros(shape)], {})
    with pytest.raises(DeltapError, match="different models"):
        ActivationFiles([tmp_path / "a", tmp_path / "b"])
    (tmp_path / "c").write_bytes((tmp_path / "a").read_bytes()[:40])
    with pytest.raises(DeltapError, match="c: damaged"):
        ActivationFiles([tmp_path / "c"])
    with pytest.raises(DeltapError, match=r"no file called clean\.mlp\.last\.safetensors"):
        activation_files([tmp_path / "a"], "clean", "mlp", "last")


def test_the_nearest_valid_name_is_proposed():
    assert nearest("popa", ["nq", "popqa"]) == "; did you mean 'popqa'? (valid: nq, popqa)"
    assert nearest("zzz", ["nq"]) == " (valid: nq)"
    assert nearest("x", []) == " (valid: none)"


def test_contents_are_what_is_in_files_and_not_where_they_lie_or_since_when(tmp_path):
    first, second = tmp_path / "a" / "x.json", tmp_path / "b" / "x.json"
    for path in (first, second):
        path.parent.mkdir()
        path.write_text("one")
    os.utime(second, (1, 1))
    assert contents([first]) == contents([second])
    replace_keeping_time(second, b"two")
    assert contents([first]) != contents([second])
    second.rename(second.with_name("y.json"))
    first.write_text("two")
    assert contents([first]) != contents([second.with_name("y.json")])


@pytest.mark.parametrize("place", [0, 0.5, 1])
def test_of_a_large_file_contents_see_other_weights_wherever_they_begin(tmp_path, place):
    """Weights that were trained on differ everywhere; what is read of them is a part."""
    path = tmp_path / "model.safetensors"
    random = np.random.default_rng(0)
    weights = random.bytes(40 << 20)
    path.write_bytes(weights)
    before = contents([path])
    at = int(place * (len(weights) - (1 << 20)))
    replace_keeping_time(path, weights[:at] + random.bytes(1 << 20) + weights[at + (1 << 20) :])
    assert contents([path]) != before


def replace_keeping_time(path, content):
    """Put another file in the place of one, with the same time, as unpacking an archive does."""
    found, other = path.stat(), path.with_name("other")
    other.write_bytes(content)
    os.utime(other, ns=(found.st_atime_ns, found.st_mtime_ns))
    other.replace(path)


def test_a_file_that_changes_while_it_is_read_is_refused_by_name(tmp_path):
    path = tmp_path / "tokenizer.json"
    path.write_text("one")
    with unchanged([path]):
        pass
    with (
        pytest.raises(DeltapError, match=r"tokenizer\.json: changed while it was read; start again"),
        unchanged([path]),
    ):
        replace_keeping_time(path, b"two")
    with pytest.raises(DeltapError, match="changed while it was read"), unchanged([path]):
        path.unlink()
    with pytest.raises(OSError, match="its own"), unchanged([path]):
        raise OSError("its own")
