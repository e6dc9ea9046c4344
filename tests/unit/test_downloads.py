"""Downloads: what is fetched from the hub (a stand-in that serves folders to the real client libraries), and pinned."""

import json
import re
import shutil
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from safetensors.torch import load_file
from tokenizers.pre_tokenizers import ByteLevel

import stand_in_hub
import tiny
from deltap import hub as hub_module
from deltap.errors import DeltapError
from deltap.files import file_sha256, write_json
from deltap.hub import Repository
from deltap.manifest import MANIFEST, read_manifest
from deltap.models.directory import revision
from deltap.models.fetch import fetch
from deltap.models.load import load
from deltap.questions.build import question_table
from deltap.questions.hub import DATA, downloaded, fetch_dataset
from deltap.run import Run
from deltap.settings import DatasetDownload, DatasetSource, ModelSettings, QuestionsStage, Source

MODEL = Source(hub="owner/tiny")
SET = DatasetDownload(hub="owner/questions", subset="short", hub_split="validation")
README = """---
configs:
- config_name: short
  data_files:
  - {split: train, path: short/train*}
  - {split: validation, path: short/validation*}
- config_name: long
  data_files:
  - {split: validation, path: long/validation*}
---
"""


@pytest.fixture(scope="module")
def model_folder(tmp_path_factory) -> Path:
    """A model repository with what people leave in theirs: other layouts, pickles, subfolders, a readme."""
    folder = tiny.save(tmp_path_factory.mktemp("model"))
    (folder / "original").mkdir()
    (folder / "original" / "params.json").write_text("{}")
    (folder / "consolidated.safetensors").write_bytes(b"the same weights again")
    (folder / "pytorch_model.bin").write_bytes(b"pickle")
    (folder / "README.md").write_text("# Tiny")
    return folder


def data_folder(folder: Path, answer: str = "a") -> Path:
    (folder / "short").mkdir(parents=True)
    (folder / "long").mkdir()
    (folder / "README.md").write_text(README)
    for name, size in (("short/train", 5), ("short/validation", 40), ("long/validation", 3)):
        rows = [
            {
                "question": f"q{n}",
                "question_id": f"t{n}",
                "answer": {"value": f"{answer}{n}", "aliases": [f"{answer} {n}"]},
            }
            for n in range(size)
        ]
        pq.write_table(pa.Table.from_pylist(rows), folder / f"{name}.parquet")
    return folder


@pytest.fixture
def hub(tmp_path, monkeypatch, model_folder):
    """A hub with one model and one question set."""
    import datasets
    import huggingface_hub

    with stand_in_hub.serving() as serving:
        monkeypatch.setattr(hub_module, "api", lambda: huggingface_hub.HfApi(token=False))
        template = f"{serving.endpoint}/{{repo_id}}/resolve/{{revision}}/{{filename}}"
        monkeypatch.setattr(huggingface_hub.constants, "HUGGINGFACE_CO_URL_TEMPLATE", template)
        monkeypatch.setattr(huggingface_hub.constants, "ENDPOINT", serving.endpoint)
        monkeypatch.setattr(datasets.config, "HF_ENDPOINT", serving.endpoint)
        monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
        monkeypatch.chdir(tmp_path)
        serving.add("models/owner/tiny", model_folder)
        serving.add("datasets/owner/questions", data_folder(tmp_path / "served"))
        yield serving


def newest(hub: stand_in_hub.Hub, name: str) -> str:
    return list(hub.repositories[name].commits)[-1]


def test_of_a_model_the_weights_of_transformers_and_its_small_files_are_fetched(hub, tmp_path, model_folder):
    fetch(MODEL, tmp_path / "tiny")
    names = {path.name for path in (tmp_path / "tiny").iterdir() if path.is_file()}
    assert {"config.json", "model.safetensors", "tokenizer.json", MANIFEST} <= names
    assert not names & {"consolidated.safetensors", "pytorch_model.bin", "README.md", "params.json"}
    load(tmp_path / "tiny", ModelSettings(kind="base", dtype="float32", device="cpu"))
    assert revision(tmp_path / "tiny") == revision(shutil.copytree(tmp_path / "tiny", tmp_path / "copy"))


def test_the_manifest_names_commit_and_files_with_sizes_and_checksums(hub, tmp_path):
    fetch(MODEL, tmp_path / "tiny")
    fetch_dataset(SET, tmp_path / "set")
    for folder, name in (("tiny", "models/owner/tiny"), ("set", "datasets/owner/questions")):
        manifest = json.loads((tmp_path / folder / MANIFEST).read_text())
        assert manifest["revision"] == newest(hub, name)
        assert manifest["source"]["hub"] == name.partition("/")[2]
        for file in manifest["files"]:
            path = tmp_path / folder / file["name"]
            assert (file["size"], file["sha256"]) == (path.stat().st_size, file_sha256(path))
    assert [file["name"] for file in manifest["files"]] == [DATA]


def test_a_split_is_one_parquet_file_that_is_read_like_any_other(hub, tmp_path):
    fetch_dataset(SET, tmp_path / "set")
    entry = DatasetSource(format="triviaqa", **SET.model_dump())
    local, facts = downloaded(entry, tmp_path / "set" / MANIFEST)
    stage = {"dataset": "trivia", "entry": local.model_dump(), "questions": {}, "examples": []}
    table, counts = question_table(QuestionsStage.model_validate(stage))
    assert counts["rows"] == len(table) == 40
    assert next(row for row in table if row["question_id"] == "t7")["gold_answers"] == ("a7", "a 7")
    assert facts == {
        "repository": "owner/questions",
        "commit": newest(hub, "datasets/owner/questions"),
        "file_sha256": file_sha256(tmp_path / "set" / DATA),
    }
    assert {path.name for path in (tmp_path / "set").iterdir()} == {DATA, MANIFEST}


def test_the_same_commit_gives_the_same_bytes(hub, tmp_path):
    for folder in ("one", "two"):
        fetch_dataset(SET, tmp_path / folder)
    assert (tmp_path / "one" / DATA).read_bytes() == (tmp_path / "two" / DATA).read_bytes()


def test_a_whole_download_is_left_alone(hub, tmp_path):
    fetch(MODEL, tmp_path / "tiny")
    fetch_dataset(SET, tmp_path / "set")
    hub.requests.clear()
    fetch(MODEL, tmp_path / "tiny")
    fetch_dataset(SET, tmp_path / "set")
    assert not hub.requests


def test_the_first_manifest_pins_the_commit(hub, tmp_path, model_folder):
    fetch(MODEL, tmp_path / "tiny")
    fetch_dataset(SET, tmp_path / "set")
    first = {folder: read_manifest(tmp_path / folder) for folder in ("tiny", "set")}
    newer = shutil.copytree(model_folder, tmp_path / "newer")
    (newer / "config.json").write_text((newer / "config.json").read_text() + "\n")
    hub.add("models/owner/tiny", newer)
    hub.add("datasets/owner/questions", data_folder(tmp_path / "newer-set", answer="b"))
    (tmp_path / "tiny" / "config.json").unlink()
    (tmp_path / "set" / DATA).unlink()
    fetch(MODEL, tmp_path / "tiny")
    fetch_dataset(SET, tmp_path / "set")
    assert {folder: read_manifest(tmp_path / folder) for folder in first} == first

    fetch(MODEL, tmp_path / "fresh")
    assert read_manifest(tmp_path / "fresh").revision == newest(hub, "models/owner/tiny") != first["tiny"].revision


def test_a_configured_commit_is_the_one_that_is_fetched(hub, tmp_path):
    old = newest(hub, "datasets/owner/questions")
    hub.add("datasets/owner/questions", data_folder(tmp_path / "newer", answer="b"))
    fetch_dataset(SET.model_copy(update={"revision": old}), tmp_path / "set")
    assert read_manifest(tmp_path / "set").revision == old
    assert pq.read_table(tmp_path / "set" / DATA)["answer"][0].as_py()["value"] == "a0"


def test_files_of_another_commit_do_not_stay(hub, tmp_path):
    fetch(MODEL, tmp_path / "tiny")
    (tmp_path / "tiny" / MANIFEST).unlink()
    (tmp_path / "tiny" / "model-00002-of-00002.safetensors").write_bytes(b"of an older layout")
    fetch(MODEL, tmp_path / "tiny")
    assert not (tmp_path / "tiny" / "model-00002-of-00002.safetensors").exists()


def test_gated_repositories_are_refused_before_anything_is_downloaded(hub, tmp_path, model_folder):
    hub.add("models/meta/gated", model_folder, gated=True)
    hub.add("datasets/meta/gated", data_folder(tmp_path / "gated"), gated=True)
    others = [Repository("model", "meta/gated"), Repository("dataset", "meta/gated"), Repository("model", "meta/typo")]
    for download in (lambda: fetch(MODEL, tmp_path / "m", others), lambda: fetch_dataset(SET, tmp_path / "d", others)):
        with pytest.raises(DeltapError) as refusal:
            download()
        lines = str(refusal.value).splitlines()
        assert len(lines) == 3  # all of them in one go
        assert "licence" in lines[0]
        assert "/meta/gated" in lines[0]
        assert "/datasets/meta/gated" in lines[1]
        assert all("hf auth login" in line and "HF_TOKEN" in line for line in lines[:2])
        assert "no such model" in lines[2]
    assert not hub.downloaded()


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ({"hub": "owner/tini"}, "owner/tini: the hub has no such model, or it is private"),
        ({"hub": "owner/tiny", "revision": "v9"}, "owner/tiny: the hub has no revision 'v9' of this model"),
        ({"hub": "https://hub.example/owner/tiny"}, "correct 'hub' (OWNER/NAME)"),
        ({"hub": "owner/broken"}, "owner/broken: the hub refuses this model (Server error '503"),
        ({"hub": "owner/pickles"}, "no weights model*.safetensors (it has: pytorch_model.bin)"),
    ],
)
def test_what_the_hub_does_not_have_is_an_error_with_the_remedy(hub, tmp_path, source, message):
    (tmp_path / "pickles").mkdir()
    (tmp_path / "pickles" / "pytorch_model.bin").write_bytes(b"pickle")
    hub.add("models/owner/pickles", tmp_path / "pickles")
    hub.repositories["models/owner/broken"] = stand_in_hub.Repository({})
    with pytest.raises(DeltapError, match=re.escape(message)):
        fetch(Source(**source), tmp_path / "out")
    assert not hub.downloaded()
    assert not (tmp_path / "out" / MANIFEST).exists()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"hub": "owner/questoins"}, "the hub has no such data set"),
        ({"revision": "v9"}, "no revision 'v9' of this data set"),
        ({"hub_split": "dev"}, "split dev, commit"),
        ({"subset": "medium"}, "subset medium"),
    ],
)
def test_a_data_set_that_the_hub_does_not_have_is_an_error_with_the_remedy(hub, tmp_path, change, message):
    with pytest.raises(DeltapError, match=message) as refusal:
        fetch_dataset(SET.model_copy(update=change), tmp_path / "set")
    assert "orrect" in str(refusal.value)
    assert not list((tmp_path / "set").glob("*"))


def test_a_hub_that_does_not_answer_says_which_command_helps_and_what_else(hub, tmp_path, monkeypatch):
    import huggingface_hub

    closed = huggingface_hub.HfApi(endpoint="http://127.0.0.1:9", token=False)
    monkeypatch.setattr(hub_module, "api", lambda: closed)
    downloads: list[tuple[Any, str]] = [
        (lambda: fetch(MODEL, tmp_path / "m"), "source: {path: DIRECTORY}"),
        (lambda: fetch_dataset(SET, tmp_path / "d"), "'path:'"),
    ]
    for offline in (False, True):
        monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", offline)
        for download, local in downloads:
            with pytest.raises(DeltapError) as refusal:
                download()
            assert "snakemake download" in str(refusal.value)
            assert "--configfile" in str(refusal.value)
            assert local in str(refusal.value)
            assert ("HF_HUB_OFFLINE is set" in str(refusal.value)) == offline


def test_a_file_that_is_not_the_hubs_is_refused_and_not_kept(hub, tmp_path, monkeypatch):
    monkeypatch.setattr(stand_in_hub, "_sha256", lambda path: "0" * 64)
    with pytest.raises(DeltapError, match=r"not downloaded as the hub has them: model\.safetensors"):
        fetch(MODEL, tmp_path / "tiny")
    assert not (tmp_path / "tiny" / "model.safetensors").exists()
    assert not (tmp_path / "tiny" / MANIFEST).exists()


def test_a_folder_of_the_repositorys_name_is_not_taken_for_it(hub, tmp_path):
    (tmp_path / "owner" / "questions").mkdir(parents=True)
    with pytest.raises(DeltapError, match="a folder of this name lies in the working directory"):
        fetch_dataset(SET, tmp_path / "set")


def test_a_missing_or_damaged_download_is_refused_by_who_reads_it(hub, tmp_path):
    entry = DatasetSource(format="triviaqa", **SET.model_dump())
    for manifest in (None, tmp_path / "set" / MANIFEST):
        with pytest.raises(DeltapError, match="not downloaded yet; run 'snakemake download'"):
            downloaded(entry, manifest)
    fetch(MODEL, tmp_path / "tiny")
    fetch_dataset(SET, tmp_path / "set")
    content = (tmp_path / "set" / DATA).read_bytes()
    (tmp_path / "set" / DATA).write_bytes(content[:-1] + b"x")
    with pytest.raises(DeltapError, match="not the file that was downloaded"):
        downloaded(entry, tmp_path / "set" / MANIFEST)
    (tmp_path / "set" / DATA).write_bytes(content + b"x")
    (tmp_path / "tiny" / "tokenizer.json").unlink()
    with pytest.raises(DeltapError, match=r"data\.parquet: changed .* 'snakemake download --forcerun"):
        downloaded(entry, tmp_path / "set" / MANIFEST)
    with pytest.raises(DeltapError, match=r"tokenizer\.json: missing"):
        revision(tmp_path / "tiny")
    (tmp_path / "set" / MANIFEST).write_text('{"files": 3}')
    with pytest.raises(DeltapError, match="not a manifest"):
        downloaded(entry, tmp_path / "set" / MANIFEST)


def write_gguf(path: Path, seed: int = 0, scale: float = 1.0) -> np.ndarray:
    """Write a small Llama model as a GGUF file, and return its embedding; ``scale`` is that of its weights."""
    random = np.random.default_rng(seed)
    hidden, heads, groups, inner, tokens = 32, 4, 2, 48, ["<s>", "</s>", *ByteLevel.alphabet(), "ab"]
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_block_count(1)
    writer.add_context_length(512)
    writer.add_embedding_length(hidden)
    writer.add_feed_forward_length(inner)
    writer.add_head_count(heads)
    writer.add_head_count_kv(groups)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_dimension_count(hidden // heads)
    writer.add_vocab_size(len(tokens))
    writer.add_tokenizer_model("gpt2")
    writer.add_token_list(tokens)
    writer.add_token_types([3, 3, *[1] * (len(tokens) - 2)])
    writer.add_token_merges(["a b"])
    writer.add_bos_token_id(0)
    writer.add_eos_token_id(1)
    shapes = {
        "token_embd": (len(tokens), hidden), "output": (len(tokens), hidden), "output_norm": (hidden,),
        "blk.0.attn_norm": (hidden,), "blk.0.ffn_norm": (hidden,), "blk.0.attn_q": (hidden, hidden),
        "blk.0.attn_k": (hidden // 2, hidden), "blk.0.attn_v": (hidden // 2, hidden),
        "blk.0.attn_output": (hidden, hidden), "blk.0.ffn_gate": (inner, hidden), "blk.0.ffn_up": (inner, hidden),
        "blk.0.ffn_down": (hidden, inner),
    }  # fmt: skip
    tensors = {name: scale * random.standard_normal(shape, dtype=np.float32) for name, shape in shapes.items()}
    for name, tensor in tensors.items():
        writer.add_tensor(f"{name}.weight", tensor)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return tensors["token_embd"]


def test_a_local_gguf_file_is_converted_once_and_again_when_it_is_another(tmp_path):
    embedding = write_gguf(tmp_path / "small.gguf")
    source, directory = Source(path=str(tmp_path / "small.gguf")), tmp_path / "small"
    fetch(source, directory)
    weights = load_file(directory / "model.safetensors")
    assert np.array_equal(weights["model.embed_tokens.weight"].numpy(), embedding)
    assert read_manifest(directory).revision == file_sha256(tmp_path / "small.gguf")
    tokenizer, engine = load(directory, ModelSettings(kind="base", dtype="float32", device="cpu"))
    assert engine.layers == 1
    assert tokenizer.decode(tokenizer("ab c", add_special_tokens=False).input_ids) == "ab c"

    written = (directory / MANIFEST).stat().st_mtime_ns
    fetch(source, directory)
    assert (directory / MANIFEST).stat().st_mtime_ns == written
    embedding = write_gguf(tmp_path / "small.gguf", seed=1)
    fetch(source, directory)
    assert np.array_equal(load_file(directory / "model.safetensors")["model.embed_tokens.weight"].numpy(), embedding)


def test_what_is_no_gguf_file_is_refused(tmp_path):
    (tmp_path / "text.gguf").write_text("hello")
    (tmp_path / "half.gguf").write_bytes(b"GGUF\x03\x00\x00\x00")
    for name, message in (
        ("text", "not a GGUF file"),
        ("half", "cannot convert this GGUF file"),
        ("no", "no such file"),
    ):
        with pytest.raises(DeltapError, match=message):
            fetch(Source(path=str(tmp_path / f"{name}.gguf")), tmp_path / name)


def test_no_two_downloads_share_a_folder_and_only_missing_ones_are_asked_for(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    models: list[dict[str, Any]] = [{"hub": "a/b"}, {"hub": "a/b", "revision": "v1"}, {"hub": "a--b/c"}]
    models += [{"path": "one/small.gguf"}, {"path": "two/small.gguf"}, {"path": "a directory"}]
    sets = [{"hub": "a/b"}, {"hub": "a/b", "subset": "x"}, {"hub": "a/b", "hub_split": "test[:10]"}]
    sets += [{"hub": "a/b", "hub_split": "test[10:]"}, {"path": "questions.csv"}]
    write_json(
        tmp_path / "models.yaml",
        {f"m{n}": {"label": "M", "kind": "base", "source": source} for n, source in enumerate(models)},
    )
    write_json(
        tmp_path / "datasets.yaml",
        {
            f"d{n}": {"label": "D", **({"hub_split": "test"} if "hub" in entry else {}), **entry}
            for n, entry in enumerate(sets)
        },
    )
    write_json(tmp_path / "figures.yaml", {})
    names = {"models": [f"m{n}" for n in range(6)], "datasets": [f"d{n}" for n in range(5)], "figures": []}
    run = Run({"run": "r", **names}, tmp_path)
    assert list(run.model_downloads.values()) == [run.models[f"m{n}"].source for n in range(5)]
    assert len({run.model_directory(name) for name in run.models}) == 6
    assert len(run.dataset_downloads) == 4
    assert len({run.question_file(name) for name in run.datasets}) == 5
    hub_models = [Repository("model", "a/b"), Repository("model", "a/b", "v1"), Repository("model", "a--b/c")]
    assert run.not_downloaded() == [*hub_models, Repository("dataset", "a/b")]
    write_json(run.model_directory("m1") / MANIFEST, {})
    assert run.not_downloaded() == [hub_models[0], hub_models[2], Repository("dataset", "a/b")]


def test_a_repository_is_written_as_it_is_read():
    for repository in (Repository("model", "a/b"), Repository("dataset", "c/d", "refs/pr/1")):
        assert Repository.parse(str(repository)) == repository
    with pytest.raises(ValueError, match="OWNER/NAME"):
        Repository.parse("a/b")
