"""What made a run, collected from its tables, and a Markdown report as a page."""

import pyarrow as pa
import pytest

from deltap.manifest import described, write_manifest
from deltap.origin import origin, report
from deltap.page import page
from deltap.tables import write_table

SCHEMA = pa.schema({"x": pa.int64()})


def record(stage, settings=None, code="c1", inputs=None, **facts):
    """What a file says of how it was made."""
    return {
        "stage": stage, "deltap": "0.1.0", "code": code, "settings": settings or {}, "settings_digest": str(settings),
        "versions": {"torch": "2.13.0"}, "inputs": inputs, **facts,
    }  # fmt: skip


def inference(model, dataset, **facts):
    questions = record("questions", {"dataset": dataset}, file_sha256=f"sum of {dataset}")
    return record("inference", {"model": model, "dataset": dataset}, inputs=questions, **facts)


@pytest.fixture
def found(tmp_path):
    parts = [
        inference("big", "nq", model_revision="r1", device="cuda", ranks=1),
        inference("big", "popqa", model_revision="r1", device="cpu", ranks=1, code="c2"),
        inference("small", "nq", model_revision="r2", device="cpu", ranks=1),
    ]
    made_by = record("merge", inputs=[record("labels", inputs=part) for part in parts])
    for name in ("answers", "probes"):
        write_table(tmp_path / f"{name}.parquet", [{"x": 1}], SCHEMA, {"provenance": made_by})
    (tmp_path / "weights").write_text("w")
    write_manifest(tmp_path, {"hub": "org/big", "revision": None}, "commit1", described([tmp_path / "weights"]))
    tables = [tmp_path / "answers.parquet", tmp_path / "probes.parquet"]
    return origin(tables, [tmp_path / "manifest.json"], {"run": {"run": "mine", "formats": ["png"]}})


def test_every_model_and_data_set_is_there_once_with_all_that_is_said_of_it(found):
    assert found["models"] == {
        "big": {"model_revision": ["r1"], "device": ["cuda", "cpu"], "ranks": [1]},
        "small": {"model_revision": ["r2"], "device": ["cpu"], "ranks": [1]},
    }
    assert found["datasets"] == {name: {"file_sha256": [f"sum of {name}"]} for name in ("nq", "popqa")}


def test_stages_that_were_made_by_several_versions_say_so(found):
    assert found["stages"]["inference"]["code"] == ["c1", "c2"]
    assert found["stages"]["questions"]["code"] == ["c1"]
    assert list(found["stages"]) == ["questions", "inference", "labels", "merge"]  # what comes first stands first
    assert found["versions"] == [{"torch": "2.13.0"}]


def test_downloads_tables_and_configuration_are_there(found, tmp_path):
    (download,) = found["downloads"]
    assert (download["source"]["hub"], download["revision"], list(download["files"])) == (
        "org/big", "commit1", ["weights"],
    )  # fmt: skip
    assert list(found["tables"]) == ["answers.parquet", "probes.parquet"]
    assert len(found["tables"]["probes.parquet"]["sha256"]) == 64
    assert found["configuration"]["run"]["run"] == "mine"


def test_the_report_shows_all_of_it_as_a_page(found):
    html = page(report(found))
    assert html.startswith("<!doctype html>")
    assert "<title>Provenance</title>" in html
    for text in ("<td>big</td>", "<td>cuda, cpu</td>", "<td>c1, c2</td>", "hub org/big", "commit1", "run: mine"):
        assert text in html
    assert "| --" not in html  # every table became one


def test_a_page_shows_html_as_text():
    assert "<script>" not in page("# <script>\n\n<script>alert(1)</script>\n\n| a |\n| - |\n| <b> |\n")
