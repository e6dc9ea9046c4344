"""The archive of a run, and deltap's citation in it."""

import tomllib
import zipfile
from pathlib import Path

import pytest
import yaml

from deltap import __version__
from deltap.archive import write_archive

ROOT = Path(__file__).parents[2]


@pytest.fixture
def files(tmp_path):
    """Two files by their names in the archive."""
    found = {"figures/b.svg": tmp_path / "b.svg", "a.parquet": tmp_path / "a.parquet"}
    for name, path in found.items():
        path.write_text(name)
    return found


def test_it_holds_the_files_and_a_readme_in_a_folder_named_after_the_run(files, tmp_path):
    write_archive(tmp_path / "mine.zip", "mine", files)
    with zipfile.ZipFile(tmp_path / "mine.zip") as archive:
        assert archive.namelist() == ["mine/README.md", "mine/a.parquet", "mine/figures/b.svg"]
        assert archive.testzip() is None
        assert archive.read("mine/figures/b.svg") == b"figures/b.svg"
        readme = archive.read("mine/README.md").decode()
    assert "# The run mine" in readme
    assert "scripts/plot_delta_p.py --table PATH/TO/mine" in readme


def test_the_same_files_give_the_same_bytes_whenever_and_in_whatever_order(files, tmp_path):
    write_archive(tmp_path / "one.zip", "mine", files)
    for path in files.values():
        path.write_text(path.read_text())
        path.chmod(0o600)
    write_archive(tmp_path / "other.zip", "mine", dict(reversed(files.items())))
    assert (tmp_path / "one.zip").read_bytes() == (tmp_path / "other.zip").read_bytes()


def test_the_citation_is_of_this_version_and_names_the_paper():
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text("utf-8"))
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    assert {key: citation[key] for key in ("title", "version", "license")} == {
        "title": project["name"], "version": project["version"], "license": project["license"],
    }  # fmt: skip
    assert citation["abstract"] == project["description"]
    assert citation["version"] == __version__
    assert citation["authors"] == [{"name": "The deltap authors"}]
    (paper,) = citation["references"]
    assert paper["title"] == "Two Pathways to Truthfulness: On the Intrinsic Encoding of LLM Hallucinations"
    assert paper["identifiers"][0]["value"] == "arXiv:2601.07422"
