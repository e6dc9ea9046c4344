"""A file that is not what was written is refused by its name, with what makes it again; nothing of it is ever read."""

import json
import random
import re
import shutil
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pyarrow.parquet as pq
import pytest

import stages
import tiny
from deltap import checksum
from deltap.code import code_digest
from deltap.errors import DeltapError
from deltap.files import file_sha256, write_json
from deltap.llm.ask import Task
from deltap.llm.cache import Cached
from deltap.manifest import MANIFEST, described, read_manifest, write_manifest
from deltap.models.load import load
from deltap.probe import made_probes, read_probes
from deltap.settings import ModelSettings
from deltap.store import Store, StoredTensor, read_rows
from deltap.tables import (
    ANCHORS,
    ANSWERS,
    DELTA_P,
    LABELS,
    PROBES,
    QUESTIONS,
    SUMMARY,
    iterate_table,
    read_metadata,
    read_table,
    write_table,
)
from deltap.tensors import ActivationFiles


@pytest.fixture(scope="module")
def made(whole_run):
    """A whole run, which no test changes."""
    return whole_run


@pytest.fixture
def folder(made, tmp_path):
    """A copy of it."""
    return Path(shutil.copytree(made.folder, tmp_path / "run"))


def every_layer(path):
    files = ActivationFiles([path])
    return [files.layer(index).tolist() for index in range(files.layers)]


def chunk(path):
    return read_rows(path), StoredTensor(path, "clean/attn/exact_answer_last")[0:9].tolist()


def table(schema):
    return lambda path: (read_table(path, schema).to_pylist(), read_metadata(path))


def in_groups(schema):
    return lambda path: ([group.to_pylist() for group in iterate_table(path, schema)], read_metadata(path))


def weights(probes):
    return {key: [array.tolist() for array in probe.arrays().values()] for key, probe in probes.items()}


# Every kind of file that one stage writes and another reads, with the reader.
KINDS = {
    "questions.parquet": table(QUESTIONS),
    "inference/1/answers.parquet": table(ANSWERS),
    "inference/1/clean.attn.exact_answer_last.safetensors": every_layer,
    "inference/1/knockout.attn.exact_answer_last.safetensors": every_layer,
    "labels.parquet": table(LABELS),
    "probes.scores.parquet": table(PROBES),
    "probes.safetensors": lambda path: (weights(read_probes(path)), made_probes(path)),
    "anchors.parquet": table(ANCHORS),
    "q_anchored.parquet": in_groups(DELTA_P),
    "delta_p.parquet": in_groups(DELTA_P),
    "delta_p_summary.parquet": in_groups(SUMMARY),
    "chunk.safetensors": chunk,
}


def path_of(folder, kind, made):
    if kind != "chunk.safetensors":
        return folder / kind
    # The largest: one with activations.
    largest = max(made.chunks, key=lambda path: path.stat().st_size)
    return folder / largest.relative_to(made.folder)


def refused(read, path):
    with pytest.raises(DeltapError) as error:
        read(path)
    message = str(error.value)
    assert str(path) in message
    assert f"rm {path}, then snakemake" in message
    assert "\n" not in message


@pytest.mark.parametrize("kind", KINDS)
def test_a_whole_file_is_read(kind, made):
    KINDS[kind](path_of(made.folder, kind, made))


@pytest.mark.parametrize("share", [0, 0.001, 0.3, 0.9, 0.999])
@pytest.mark.parametrize("kind", KINDS)
def test_a_truncated_file_is_refused(kind, share, made, folder):
    path = path_of(folder, kind, made)
    content = path.read_bytes()
    path.write_bytes(content[: int(len(content) * share)])
    refused(KINDS[kind], path)


@pytest.mark.parametrize("kind", KINDS)
def test_a_flipped_bit_anywhere_is_refused(kind, made, folder):
    """At random places, and at those where a file says what it is: its beginning, its end, its checksum."""
    path = path_of(folder, kind, made)
    content = path.read_bytes()
    size, mark = len(content), content.find(b"deltap-crc32:")
    chosen = random.Random(kind)
    places = {*range(10), *range(size - 10, size), *range(mark - 3, mark + 24), *chosen.sample(range(size), 60)}
    for place in sorted(place for place in places if 0 <= place < size):
        changed = bytearray(content)
        changed[place] ^= 1 << chosen.randrange(8)
        path.write_bytes(changed)
        refused(KINDS[kind], path)


@pytest.mark.parametrize("kind", KINDS)
def test_bytes_behind_the_end_and_another_file_by_the_name_are_refused(kind, made, folder):
    path = path_of(folder, kind, made)
    content = path.read_bytes()
    for other in (content + b"\0", content + content, b"\0" * len(content), b"hello", content[1:]):
        path.write_bytes(other)
        refused(KINDS[kind], path)


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind.endswith(".parquet")])
def test_a_table_without_a_column_is_refused_by_both_names(kind, made, folder):
    path = folder / kind
    whole = pq.read_table(path)
    for name in (whole.column_names[0], whole.column_names[-1]):
        pq.write_table(whole.drop_columns([name]), path)
        with pytest.raises(DeltapError, match=f"{re.escape(str(path))}: missing columns {name}"):
            KINDS[kind](path)


@pytest.mark.parametrize("kind", KINDS)
def test_a_file_that_is_not_there_is_refused_by_name(kind, made, folder):
    path = path_of(folder, kind, made)
    path.unlink()
    with pytest.raises(DeltapError, match=f"{re.escape(str(path))}: no such"):
        KINDS[kind](path)


def test_a_table_that_somebody_else_wrote_is_read_without_a_checksum(made, tmp_path):
    """Someone who selects rows of an exported table and draws a figure of them."""
    pq.write_table(pq.read_table(made.folder / "delta_p_summary.parquet").slice(0, 3), tmp_path / "mine.parquet")
    assert not checksum.check(tmp_path / "mine.parquet")
    assert len(read_table(tmp_path / "mine.parquet", SUMMARY)) == 3


def test_other_readers_read_the_sealed_files(made):
    import pandas as pd
    from safetensors.numpy import load_file

    frame = pd.read_parquet(made.folder / "delta_p.parquet")
    assert len(frame) == len(read_table(made.folder / "delta_p.parquet", DELTA_P))
    path = stages.activations(made.folder, "clean")[0]
    stored = load_file(path)["activations"]
    assert np.array_equal(stored, np.stack([ActivationFiles([path]).layer(index) for index in range(len(stored))]))


def test_a_sealed_file_has_the_same_bytes_every_time(made, folder):
    before = {
        path: file_sha256(path) for path in sorted(folder.glob("*.parquet")) + sorted(folder.glob("*.safetensors"))
    }
    stages.labels(folder)
    stages.probes(folder)
    stages.anchors(folder)
    stages.tables(folder)
    assert before == {path: file_sha256(path) for path in before}


def test_a_damaged_chunk_is_said_and_computed_again(made, folder, caplog):
    """To the same answers; activations are read in passes of their own where the answers are kept already."""
    path = path_of(folder, "chunk.safetensors", made)
    path.write_bytes(path.read_bytes()[:-5])
    shutil.rmtree(folder / "inference")
    with caplog.at_level("INFO", "deltap"):
        for shard in (0, 1):
            stages.inference(folder, shard)
    assert f"{path}: damaged" in caplog.text
    assert f"chunk {path.stem} is computed again" in caplog.text
    chunk(path)
    for shard in (0, 1):
        answers = Path("inference") / str(shard) / "answers.parquet"
        assert read_table(folder / answers, ANSWERS) == read_table(made.folder / answers, ANSWERS)
    for name in ("clean", "knockout"):
        found, expected = (ActivationFiles(stages.activations(where, name)) for where in (folder, made.folder))
        for layer in range(found.layers):
            assert np.allclose(found.layer(layer), expected.layer(layer), atol=1e-5)


def test_a_damaged_reply_is_asked_for_again(tmp_path):
    asked = []

    class Replier:
        def identity(self):
            return {"model": "m"}

        def replies(self, task, texts, progress):
            asked.append(list(texts))
            return [f'{{"core": "{text}"}} \ud800' for text in texts]

    task, cached = Task("Name it.", ()), Cached(Replier(), tmp_path)
    first = cached.replies(task, ["Paris"], lambda done: None)
    assert cached.replies(task, ["Paris"], lambda done: None) == first
    assert asked == [["Paris"]]
    (path,) = tmp_path.rglob("*.json")
    content = path.read_bytes()
    chosen = random.Random(0)
    for place in chosen.sample(range(len(content)), 60):
        changed = bytearray(content)
        changed[place] ^= 1 << chosen.randrange(8)
        path.write_bytes(changed)
        assert cached.replies(task, ["Paris"], lambda done: None) == first
    for other in (b"", content[:20], b"[]", b"null", b"[" * 100_000):
        path.write_bytes(other)
        assert cached.replies(task, ["Paris"], lambda done: None) == first


@pytest.fixture(scope="module")
def fetched(tmp_path_factory):
    """A model directory with a manifest, as downloads leave it."""
    directory = tiny.save(tmp_path_factory.mktemp("fetched") / "model")
    write_manifest(directory, {"hub": "a/b"}, "c0ffee", described(directory.iterdir()))
    return directory


def test_a_damaged_manifest_is_refused(fetched, tmp_path):
    directory = Path(shutil.copytree(fetched, tmp_path / "model"))
    whole = read_manifest(directory)
    content = (directory / MANIFEST).read_bytes()
    chosen, said = random.Random(0), []
    for place in chosen.sample(range(len(content)), 120):
        changed = bytearray(content)
        changed[place] ^= 1 << chosen.randrange(8)
        (directory / MANIFEST).write_bytes(changed)
        try:
            found = read_manifest(directory)
        except DeltapError as error:
            said.append(str(error))
        else:
            assert found == whole  # white space, or the key of the digest: what is said is as it was
    assert len(said) > 60
    assert all(f"{directory / MANIFEST}: not a manifest" in each and "snakemake download" in each for each in said)
    for other in (b"", content[:30], b"[]", b"null", b"{}", b"[" * 100_000):
        (directory / MANIFEST).write_bytes(other)
        with pytest.raises(DeltapError, match="not a manifest"):
            read_manifest(directory)


@pytest.mark.parametrize("name", ["model.safetensors", "tokenizer.json", "config.json"])
@pytest.mark.parametrize("damage", ["flipped", "truncated", "missing"])
def test_a_damaged_model_is_refused_by_name(name, damage, fetched, tmp_path):
    directory = Path(shutil.copytree(fetched, tmp_path / "model"))
    content = bytearray((directory / name).read_bytes())
    content[len(content) // 2] ^= 1
    if damage == "missing":
        (directory / name).unlink()
    else:
        (directory / name).write_bytes(content if damage == "flipped" else content[:-7])
    with pytest.raises(DeltapError, match=re.escape(str(directory))) as error:
        load(directory, ModelSettings(**stages.ENTRY))
    if damage != "missing":
        assert str(directory / name) in str(error.value)
        assert "snakemake download --forcerun fetch_model" in str(error.value)


# What was not made together.


def other_shard(folder, **changes):
    """Make the second shard anew, otherwise."""
    shutil.rmtree(folder / "inference" / "1")
    stages.inference(folder, 1, **changes)


def mixed(call, *names):
    with pytest.raises(DeltapError) as error:
        call()
    for name in names:
        assert name in str(error.value)
    assert "snakemake --forcerun" in str(error.value)


def test_shards_of_another_dtype_are_not_mixed(folder):
    other_shard(folder, dtype="bfloat16")
    mixed(
        lambda: stages.labels(folder),
        "answers.parquet",
        "settings.entry.dtype is 'float32' and 'bfloat16'",
        "inference",
    )
    mixed(
        lambda: ActivationFiles(stages.activations(folder, "clean")), "clean.attn", "dtype is 'float32' and 'bfloat16'"
    )


def test_shards_of_another_model_revision_are_not_mixed(folder):
    tiny.save(folder / "model", "llama", seed=1)
    other_shard(folder)
    mixed(lambda: stages.labels(folder), "model_revision is ")
    mixed(lambda: stages.probes(folder), "model_revision is ")


def test_shards_by_other_code_are_not_mixed_but_a_comment_is_no_change(folder, monkeypatch, tmp_path):
    module = stages.script("inference")
    copied = tmp_path / "scripts" / "inference.py"
    shutil.copytree(stages.ROOT / "scripts", copied.parent, ignore=shutil.ignore_patterns("__pycache__"))
    copied.write_text(f"# Another comment.\n{copied.read_text()}\n\n# And one more.\n")
    assert code_digest(copied) == code_digest(module.__file__)
    monkeypatch.setattr(module, "__file__", str(copied))
    other_shard(folder)
    stages.labels(folder)
    copied.write_text(f"{copied.read_text()}\nOTHER = 1\n")
    assert code_digest(copied) != code_digest(stages.ROOT / "scripts" / "inference.py")
    other_shard(folder)
    mixed(lambda: stages.labels(folder), "code is ")


def test_labels_of_other_answers_are_not_used(folder):
    for shard in (0, 1):
        shutil.rmtree(folder / "inference" / str(shard))
        stages.inference(folder, shard, dtype="bfloat16")
    mixed(lambda: stages.probes(folder), "labels.parquet was not made from", "clean.attn", "--forcerun labels")
    mixed(lambda: stages.anchors(folder), "labels.parquet was not made from", "--forcerun labels")


def test_probes_of_another_configuration_are_not_used(folder):
    other = stages.probes(folder, "other", kind="mlp", hidden_units=2)
    scores = folder / "probes.scores.parquet"
    mixed(lambda: stages.anchors(folder, other, scores), str(scores), str(other), "probe.kind is 'logistic' and 'mlp'")
    # Other labels, of the same answers: the probes are older.
    settings = {"labels": {"match": "containment"}, "bad_rows": 0}
    answers = [folder / "inference" / str(shard) / "answers.parquet" for shard in (0, 1)]
    stages.run("labels", settings=settings, judgements=None, given_labels=[folder / "labels.jsonl"], answers=answers,
               out=folder / "labels.parquet")  # fmt: skip
    mixed(lambda: stages.anchors(folder), "probes.safetensors was not made from", "labels.match", "--forcerun probes")


def test_parts_of_one_series_come_from_the_same_anchors(folder):
    stages.probes(folder, regularisation=[0.1])
    stages.anchors(folder)
    stage = {"anchor": "a_anchored", "groupings": ["per_layer"], "reference_class": "predicted"}
    stages.run("delta_p", settings=stage, anchors=folder / "anchors.parquet", out=folder / "a_anchored.parquet")
    parts = [folder / "q_anchored.parquet", folder / "a_anchored.parquet"]
    mixed(lambda: stages.run("merge", table="delta_p", parts=parts, metadata="{}", out=folder / "merged.parquet"),
          "q_anchored.parquet", "a_anchored.parquet", "regularisation", "--forcerun delta_p")  # fmt: skip


def test_series_by_other_versions_are_merged_with_a_warning(folder, caplog):
    path = folder / "q_anchored.parquet"
    metadata, rows = read_metadata(path), read_table(path, DELTA_P).to_pylist()
    metadata["provenance"]["versions"]["numpy"] = "0.1"
    write_table(folder / "other.parquet", [{**row, "dataset": "other"} for row in rows], DELTA_P, metadata)
    options = SimpleNamespace(
        table="delta_p", parts=[path, folder / "other.parquet"], metadata="{}", out=folder / "m.parquet"
    )
    stages.script("merge").main(options)
    if rows:
        assert "were made by different versions: versions.numpy is" in caplog.text


@pytest.mark.parametrize(
    ("stage", "fact", "others", "told"),
    [
        ("inference", "model_revision", {"dataset": "other"}, "different models called"),
        ("inference", "dtype", {"dataset": "other"}, "different models called"),
        ("questions", "file_sha256", {"model": "other"}, "different question sets called"),
    ],
)
def test_series_of_another_model_or_question_set_by_one_name_are_not_merged(stage, fact, others, told, folder):
    path = folder / "q_anchored.parquet"
    metadata, rows = read_metadata(path), read_table(path, DELTA_P).to_pylist()
    for record in every_record(metadata["provenance"]):
        if record["stage"] == stage:
            (record["settings"]["entry"] if fact == "dtype" else record)[fact] = "another one"
    write_table(folder / "other.parquet", [{**row, **others} for row in rows], DELTA_P, metadata)
    mixed(lambda: stages.run("merge", table="delta_p", parts=[path, folder / "other.parquet"], metadata="{}",
                             out=folder / "merged.parquet"),
          str(path), "other.parquet", told, f"{fact} is ", f"--forcerun {stage}")  # fmt: skip


def every_record(made_by):
    """Return all records of a provenance, its own first."""
    inputs = made_by.get("inputs") or []
    return [
        made_by,
        *(inner for each in (inputs if isinstance(inputs, list) else [inputs]) for inner in every_record(each)),
    ]


def test_the_kept_json_of_a_verdict_says_what_made_it(made):
    assert json.loads((made.folder / "verdict.json").read_text())["provenance"]["stage"] == "verdict"
    assert Store(made.folder).has(made.folder / "nothing") is False
    write_json(made.folder / "scratch.json", {})
