"""Models, tables and questions from others are data: nothing in them is run, wherever it stands."""

import ast
import json
import logging
import os
import pickle
import re
import struct
import subprocess
import sys
from importlib.metadata import distributions
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pydantic import ValidationError

import tiny
from deltap import markdown
from deltap.errors import DeltapError
from deltap.figures import interactive
from deltap.hub import is_weights
from deltap.models.directory import revision
from deltap.models.fetch import _is_small
from deltap.models.load import load
from deltap.page import page
from deltap.probe import read_probes
from deltap.run import _model_slug
from deltap.settings import DeltaPFigure, ModelEntry, ModelSettings, Source
from deltap.store import read_rows
from deltap.tables import SUMMARY, read_metadata, write_table
from deltap.tensors import ActivationFiles

ROOT = Path(__file__).parents[2]
SOURCES = sorted([*(ROOT / "workflow").rglob("*.py"), *(ROOT / "scripts").glob("*.py")])
ENTRY = ModelSettings(kind="base", dtype="float32", device="cpu")

# What runs code that stands in data, by module and name.
FORBIDDEN_MODULES = {"pickle", "cPickle", "dill", "cloudpickle", "marshal", "shelve", "tarfile", "runpy"}
FORBIDDEN_CALLS = {
    "eval", "exec", "compile", "__import__", "os.system", "os.popen", "torch.load", "np.load", "numpy.load",
    "joblib.load", "joblib.dump", "pd.read_pickle", "yaml.load", "yaml.unsafe_load", "yaml.full_load", "yaml.load_all",
    "shutil.unpack_archive", "trust_remote_code=True", "allow_pickle=True", "shell=True",
}  # fmt: skip


def dotted(node):
    if isinstance(node, ast.Attribute):
        return f"{dotted(node.value)}.{node.attr}"
    return node.id if isinstance(node, ast.Name) else "…"


def dangers(source):
    """Yield what in a module's syntax tree could run code from data."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name.split(".")[0] in FORBIDDEN_MODULES)
        elif isinstance(node, ast.ImportFrom) and node.module:
            names = [node.module.split(".")[0], *(f"{node.module}.{alias.name}" for alias in node.names)]
            yield from (name for name in names if name in FORBIDDEN_MODULES | FORBIDDEN_CALLS)
        elif isinstance(node, ast.Call):
            name = dotted(node.func)
            if name in FORBIDDEN_CALLS or name.endswith((".extractall", ".extract")):
                yield name
            for keyword in node.keywords:
                if (
                    isinstance(keyword.value, ast.Constant)
                    and f"{keyword.arg}={keyword.value.value}" in FORBIDDEN_CALLS
                ):
                    yield f"{keyword.arg}={keyword.value.value}"


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(ROOT)))
def test_nothing_in_the_package_runs_what_stands_in_data(path):
    assert list(dangers(path.read_text(encoding="utf-8"))) == []


@pytest.mark.parametrize(
    "source",
    ["import pickle", "from torch import load\nimport dill.x", "torch.load(p)", "np.load(p, allow_pickle=True)",
     "subprocess.run(c, shell=True)", "x.extractall(p)", "yaml.load(t, yaml.Loader)", "f(trust_remote_code=True)"],
)  # fmt: skip
def test_the_search_for_such_calls_finds_them(source):
    assert list(dangers(source))


def test_every_name_in_a_rules_command_is_quoted():
    """But numbers, and what the workflow itself wrote as a shell's words."""
    plain = {
        "{threads}",
        "{wildcards.shard}",
        "{wildcards.table}",
        "{params.launch}",
        "{params.expected}",
        "{resources.mem_mb}",
    }
    for path in (ROOT / "workflow" / "rules").glob("*.smk"):
        text = path.read_text(encoding="utf-8")
        for shell in re.findall(r"^ +shell:\n((?: +[^\n]*\n)+?)(?=\n|\Z|^ {0,4}\S)", text, re.MULTILINE):
            found = set(re.findall(r"(?<!\{)\{[^{}]+\}(?!\})", shell))
            assert {name for name in found if not name.endswith(":q}")} <= plain, path.name


class Poison:
    """Whoever unpickles this writes a file."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return (Path.touch, (Path(self.path),))


def test_pickles_beside_the_weights_are_left_alone_and_alone_refused(tmp_path):
    directory = tiny.save(tmp_path / "model")
    mark = tmp_path / "touched"
    for name in ("pytorch_model.bin", "model.pt", "model.pth", "training_args.bin", "tokenizer.pkl", "optimizer.pt",
                 "pytorch_model.bin.index.json", "model.ckpt", "consolidated.00.pth"):  # fmt: skip
        (directory / name).write_bytes(pickle.dumps(Poison(mark)))
    load(directory, ENTRY)
    (directory / "model.safetensors").unlink()
    with pytest.raises(DeltapError, match="only pickled weights are there, which are never loaded"):
        load(directory, ENTRY)
    assert not mark.exists()
    # A pickle by the name of safetensors is none of these either.
    (directory / "model.safetensors").write_bytes(pickle.dumps(Poison(mark)))
    with pytest.raises(DeltapError, match="cannot load this model"):
        load(directory, ENTRY)
    assert not mark.exists()


CODE = """
from pathlib import Path
from transformers import LlamaConfig, LlamaForCausalLM
Path({mark!r}).touch()
class OwnConfig(LlamaConfig):
    model_type = "own"
class OwnModel(LlamaForCausalLM):
    config_class = OwnConfig
"""


@pytest.fixture
def own_code(tmp_path, monkeypatch):
    """A model directory with code of its own, and the file that the code makes when it runs."""
    import transformers.dynamic_module_utils as modules

    monkeypatch.setattr(modules, "HF_MODULES_CACHE", str(tmp_path / "modules"))
    monkeypatch.setattr(sys, "path", [*sys.path])
    directory = tiny.save(tmp_path / "own", "llama")
    (directory / "own.py").write_text(CODE.format(mark=str(tmp_path / "ran")))
    config = json.loads((directory / "config.json").read_text())
    config |= {"model_type": "own", "architectures": ["OwnModel"],
               "auto_map": {"AutoConfig": "own.OwnConfig", "AutoModelForCausalLM": "own.OwnModel"}}  # fmt: skip
    (directory / "config.json").write_text(json.dumps(config))
    return directory, tmp_path / "ran"


def test_a_models_own_code_is_not_run(own_code):
    directory, mark = own_code
    with pytest.raises(DeltapError, match=r"own code \(own\.py\) is not run unless .*trust_remote_code: true"):
        load(directory, ENTRY)
    assert not mark.exists()


def test_a_models_own_code_is_run_where_its_entry_says_so_and_the_log_repeats_it(own_code, caplog):
    directory, mark = own_code
    with caplog.at_level(logging.WARNING, "deltap"):
        _, engine = load(directory, ENTRY.model_copy(update={"trust_remote_code": True}))
    assert mark.exists()
    assert type(engine.model).__name__ == "OwnModel"
    assert f"{directory}: trust_remote_code: the code in it is run (own.py)" in caplog.text
    before = revision(directory)
    (directory / "own.py").write_text("# other code\n")
    assert revision(directory) != before  # the code is a part of what the model is


def test_code_is_never_downloaded():
    assert ModelSettings(kind="base").trust_remote_code is False
    entry = {"label": "M", "kind": "base", "trust_remote_code": True}
    assert ModelEntry(**entry, source={"path": "models/own"}).trust_remote_code
    for source in ({"hub": "a/b"}, {"path": "x.gguf"}):
        with pytest.raises(ValidationError, match="code is never downloaded"):
            ModelEntry(**entry, source=source)
    for name in ("modeling.py", "../x.json", "a/b.json", "x.bin", "manifest.json", "/etc/x.json", "x.pkl"):
        assert not _is_small(name)
    for name in ("../model.safetensors", "a/model.safetensors", "model.bin", "/model.safetensors"):
        assert not is_weights(name)


@pytest.mark.parametrize(
    "source",
    [{"hub": "../../etc"}, {"hub": "..", "revision": "/../x"}, {"path": "/x/../y;z.gguf"},
     {"wheel": "../p==1/../2", "file": "f", "sha256": "0" * 64}],
)  # fmt: skip
def test_no_source_leads_out_of_the_folder_of_models(source):
    slug = _model_slug(Source(**source))
    assert "/" not in slug
    assert slug not in ("", ".", "..")
    assert not re.search(r"[\s;&|$`'\"<>*?]", slug)


def header(size, text=b"{}"):
    return struct.pack("<Q", size) + text


@pytest.mark.parametrize(
    "content",
    [
        header(2**63),
        header(2**64 - 1),
        header(10**9, b"{" * 1000),
        header(2, b"[]"),
        header(200_000, b"[" * 200_000),
        header(
            90, b'{"activations":{"dtype":"F32","shape":[1000000,1000000,1000],"data_offsets":[0,4]}}       ' + b"1234"
        ),
        header(
            90, b'{"activations":{"dtype":"F32","shape":[1,1,1],"data_offsets":[4,99999999]}}               ' + b"1234"
        ),
        b"PK\x03\x04" + b"\0" * 100,
    ],
)
def test_a_safetensors_header_that_promises_too_much_is_refused_without_memory(content, tmp_path):
    path = tmp_path / "clean.attn.last.safetensors"
    path.write_bytes(content)
    for read in (read_probes, read_rows, lambda path: ActivationFiles([path])):
        with pytest.raises(DeltapError, match=re.escape(str(path))):
            read(path)


@pytest.mark.parametrize("value", [b"[" * 1_000_000, b"\xff", b"[]", b'{"labels": 3', b"1" * 10_000, b"null"])
def test_metadata_that_is_no_mapping_is_refused_by_name(value, tmp_path):
    path = tmp_path / "delta_p.parquet"
    pq.write_table(pa.table({"a": [1]}).replace_schema_metadata({b"deltap": value}), path)
    with pytest.raises(DeltapError, match=re.escape(str(path))):
        read_metadata(path)


EVIL = "</script><script>alert(1)</script><img src=x onerror=alert(1)> $\\frac$ [a](javascript:alert(1)) &lt;b&gt; _x_"


def test_names_from_tables_are_text_in_figures_and_reports(tmp_path):
    row = dict.fromkeys(SUMMARY.names) | {
        "model": EVIL, "dataset": EVIL, "extractor": "auto", "intervention": "exact_question", "estimate": "plain",
        "grouping": "per_layer", "site": "attn", "position": "exact_answer_last", "n": 20, "mean": -5.0, "ci_low": -6.0,
        "ci_high": -4.0,
    }  # fmt: skip
    rows = [{**row, "anchor": anchor, "layer": layer} for anchor in ("q_anchored", "a_anchored") for layer in range(3)]
    write_table(tmp_path / "t.parquet", rows, SUMMARY, {})
    summary = pq.read_table(tmp_path / "t.parquet").to_pandas().rename(columns={"ci_low": "low", "ci_high": "high"})
    labels = {"model": {EVIL: EVIL}, "dataset": {EVIL: EVIL}}
    html = interactive.page(summary, DeltaPFigure(), labels, EVIL)
    assert "<script>alert" not in html
    assert "<img src=x" not in html
    shown = page(f"# {markdown.escaped(EVIL)}\n\n{markdown.table(['question'], [[EVIL]])}")
    assert "<script" not in shown
    assert "<img" not in shown
    assert "<a " not in shown
    assert "<em>" not in shown
    assert "&amp;lt;b" in shown


def test_the_figure_of_a_label_with_dollars_is_drawn(tmp_path):
    rows = [
        dict.fromkeys(SUMMARY.names) | {
            "model": "m", "dataset": "d", "extractor": "auto", "intervention": "exact_question", "estimate": "plain",
            "grouping": "per_layer", "anchor": anchor, "site": "attn", "position": "exact_answer_last", "layer": layer,
            "n": 20, "mean": -5.0, "ci_low": -6.0, "ci_high": -4.0,
        } for anchor in ("q_anchored", "a_anchored") for layer in range(3)
    ]  # fmt: skip
    labels = {"model": [["m", "5$ and \\frac{$"]], "dataset": [["d", "$x^$ _a_ \\"]]}
    write_table(tmp_path / "t.parquet", rows, SUMMARY, {"labels": labels})
    out = tmp_path / "figure.svg"
    command = [sys.executable, ROOT / "scripts" / "plot_delta_p.py", "--table", tmp_path / "t.parquet", "--out", out]
    done = subprocess.run(
        command, capture_output=True, text=True, env={**os.environ, "PYTHONPATH": str(ROOT / "workflow")}
    )
    assert done.returncode == 0, done.stderr
    assert "5$ and \\frac{$" in out.read_text()


def locked():
    lines = (ROOT / "envs" / "lock.txt").read_text().splitlines()
    return dict(line.split("==") for line in lines if line and not line.startswith("#"))


def normal(name):
    return re.sub(r"[-_.]+", "-", name).lower()


def test_the_lock_names_one_exact_version_of_each_package():
    lines = [line for line in (ROOT / "envs" / "lock.txt").read_text().splitlines() if not line.startswith("#")]
    assert all(re.fullmatch(r"[A-Za-z0-9._-]+==[0-9][A-Za-z0-9.!]*", line) for line in lines if line)
    names = [normal(line.split("==")[0]) for line in lines if line]
    assert len(set(names)) == len(names)


def test_the_lock_holds_everything_that_is_needed_and_it_fits_together():
    """From what each package's own metadata requires; packages that are not installed here cannot be asked."""
    import tomllib

    from packaging.markers import default_environment
    from packaging.requirements import Requirement

    lock = {normal(name): version for name, version in locked().items()}
    there = {normal(found.metadata["Name"]): found for found in distributions() if found.metadata["Name"]}
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    waiting = [(Requirement(text), "deltap") for text in project["dependencies"]]
    waiting += [
        (Requirement(text), extra) for extra, texts in project["optional-dependencies"].items() for text in texts
    ]
    seen = set()
    while waiting:
        requirement, asked_by = waiting.pop()
        name = normal(requirement.name)
        assert name in lock, f"{asked_by} needs {name}, which envs/lock.txt does not name; run 'make lock'"
        assert requirement.specifier.contains(lock[name], prereleases=True), (
            f"{asked_by}: {requirement}, not {lock[name]}"
        )
        key = (name, frozenset(requirement.extras))
        if key in seen or name not in there:
            continue
        seen.add(key)
        for text in there[name].requires or ():
            inner = Requirement(text)
            environments = [{**default_environment(), "extra": extra} for extra in ("", *requirement.extras)]
            if inner.marker is None or any(map(inner.marker.evaluate, environments)):
                waiting.append((inner, name))
    assert len(seen) > 50


def test_no_locked_version_calls_itself_inactive():
    """By its own metadata, where it is installed here; whether one was yanked only the index knows (make audit)."""
    lock = locked()
    for found in distributions():
        if lock.get(found.metadata["Name"] or "") == found.version.split("+")[0]:
            assert "Development Status :: 7 - Inactive" not in (found.metadata.get_all("Classifier") or [])
