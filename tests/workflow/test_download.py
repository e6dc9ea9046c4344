"""Downloading through the workflow, from a stand-in of the hub, and running offline from what was downloaded."""

import json

import pytest
import running
import yaml
from running import changed, planned, snakemake

import stand_in_hub
import tiny
from deltap.files import file_sha256
from deltap.tables import QUESTIONS, read_metadata, read_table

MODEL, SET = "models/owner--tiny@main", "datasets/owner--rulers@main.validation"


@pytest.fixture(scope="module")
def hub():
    with stand_in_hub.serving() as serving:
        yield serving


@pytest.fixture
def environment(hub, tmp_path, monkeypatch):
    """What a user's shell has: another hub, a cache of its own, no token."""
    for name, value in {"HF_ENDPOINT": hub.endpoint, "HF_HOME": str(tmp_path / "home")}.items():
        monkeypatch.setenv(name, value)
    for name in ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN", "HF_HUB_OFFLINE"):
        monkeypatch.delenv(name, raising=False)


def project(hub, folder):
    """Write the repositories, and the configuration of a run with them."""
    hub.repositories.clear()
    hub.add("models/owner/tiny", tiny.save(folder / "served-model", "llama"))
    hub.add("datasets/owner/rulers", data(folder / "served-set", "Nobody"))
    model = {
        "label": "Tiny",
        "source": {"hub": "owner/tiny"},
        "kind": "base",
        "dtype": "float32",
        "device": "cpu",
        "gpus": 0,
    }
    model["max_new_tokens"] = 4
    running.write_yaml(folder / "models.yaml", {"tiny": model})
    dataset = {"label": "Rulers", "format": "nq", "hub": "owner/rulers", "hub_split": "validation"}
    running.write_yaml(folder / "datasets.yaml", {"rulers": dataset})
    files = {f"{kind}_files": [str(folder / f"{kind}s.yaml")] for kind in ("model", "dataset")}
    return running.write_yaml(
        folder / "mine.yaml", {"run": "mine", "models": ["tiny"], "datasets": ["rulers"], "figures": [], **files}
    )


def data(folder, answer):
    folder.mkdir()
    lines = [json.dumps({"question": f"who ruled {name}", "answer": [answer]}) for name in running.SUBJECTS]
    (folder / "validation.jsonl").write_text("\n".join(lines) + "\n")
    return folder


def test_download_fetches_what_every_later_job_reads_offline(hub, environment, tmp_path, monkeypatch):
    configfile = project(hub, tmp_path)
    assert planned(snakemake(tmp_path, configfile, "download", "-n").stdout) == {
        "download": 1, "fetch_model": 1, "fetch_dataset": 1,
    }  # fmt: skip
    snakemake(tmp_path, configfile, "download")
    manifests = {name: json.loads((tmp_path / name / "manifest.json").read_text()) for name in (MODEL, SET)}
    commits = {name: list(repository.commits) for name, repository in hub.repositories.items()}
    assert [manifests[MODEL]["revision"]] == commits["models/owner/tiny"]
    assert [manifests[SET]["revision"]] == commits["datasets/owner/rulers"]

    # Another run uses the same downloads, and asks the hub nothing.
    hub.requests.clear()
    other = changed(configfile, run="other")
    answers = "results/other/inference/tiny/rulers/auto/0/answers.parquet"
    snakemake(tmp_path, other, answers)
    assert not hub.requests
    table = tmp_path / "results" / "other" / "questions" / "rulers.parquet"
    assert read_table(table, QUESTIONS).num_rows == len(running.SUBJECTS)
    assert read_metadata(table)["provenance"]["download"] == {
        "repository": "owner/rulers",
        "commit": manifests[SET]["revision"],
        "file_sha256": file_sha256(tmp_path / SET / "data.parquet"),
    }

    # A deleted file comes back of the commit that the manifest pins; what is done stays done.
    hub.add("datasets/owner/rulers", data(tmp_path / "newer-set", "Somebody"))
    (tmp_path / SET / "data.parquet").unlink()
    broken = snakemake(
        tmp_path, changed(configfile, run="third"), "results/third/questions/rulers.parquet", check=False
    )
    assert "snakemake download --forcerun fetch_model fetch_dataset" in broken.stdout
    snakemake(tmp_path, configfile, "download", "--forcerun", "fetch_model", "fetch_dataset")
    assert json.loads((tmp_path / SET / "manifest.json").read_text()) == manifests[SET]
    assert "Nothing to be done" in snakemake(tmp_path, other, answers).stdout

    # A download that fails leaves the manifest, and so the pin.
    (tmp_path / SET / "data.parquet").unlink()
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    offline = snakemake(tmp_path, configfile, "download", "--forcerun", "fetch_dataset", check=False)
    assert offline.returncode != 0
    assert "HF_HUB_OFFLINE is set; run 'snakemake download' with the run's --configfile" in offline.stdout
    assert json.loads((tmp_path / SET / "manifest.json").read_text()) == manifests[SET]


def test_a_gated_model_stops_the_run_before_anything_is_downloaded(hub, environment, tmp_path):
    configfile = project(hub, tmp_path)
    hub.add("models/meta/gated", tmp_path / "served-model", gated=True)
    definitions = yaml.safe_load((tmp_path / "models.yaml").read_text())
    definitions["gated"] = {**definitions["tiny"], "source": {"hub": "meta/gated"}}
    running.write_yaml(tmp_path / "models.yaml", definitions)
    hub.requests.clear()
    done = snakemake(tmp_path, changed(configfile, models=["tiny", "gated"]), "download", "--keep-going", check=False)
    assert done.returncode != 0
    assert "meta/gated: this model is gated; accept its licence at" in done.stdout
    assert not hub.downloaded()
    assert not (tmp_path / MODEL / "manifest.json").exists()
