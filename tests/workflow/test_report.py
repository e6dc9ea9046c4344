"""The report in a real browser, and the archive on another machine."""

import json
import shutil
import subprocess
import sys
import zipfile

import pytest
import yaml
from running import ROOT, planned, snakemake

from browsing import messages, open_afresh, requests, until
from deltap.tables import read_metadata

pytestmark = pytest.mark.xdist_group("workflow")  # one run serves these files
FIGURES = ["delta_p", "delta_p_interactive", "groups"]
PLACES = {
    "Figures": ["Groups", "ΔP against layer"],
    "Provenance": ["Provenance"],
    "Tables": ["Exact tokens", "Mean ΔP (CSV)", "Samples"],
    "Verdict": ["Verdict"],
}


@pytest.fixture(scope="module")
def reported(finished, configfile):
    """The run's folder with report and archive, asked for with an override on the command line."""
    snakemake(configfile.parent, configfile, "report", "export", "--config", f"figures={json.dumps(FIGURES)}")
    return finished


@pytest.fixture
def shown(browser, reported):
    open_afresh(browser, (reported / "report.html").as_uri())
    until(lambda: "The run mine" in browser.find_element("id", "app").text)
    return browser


def press(browser, *texts):
    """Follow the report's menu."""
    for text in texts:
        path = f"//*[@id='app']//*[self::a or self::button or self::li][normalize-space()='{text}']"
        until(lambda path=path: browser.find_elements("xpath", path))[0].click()


def icon(browser, row, name):
    """Press the eye (shows a result) or the information-circle (explains it) in a row of results."""
    path = f"//tr[td[normalize-space()='{row}']]//a[@iconname='{name}']"
    until(lambda: browser.find_elements("xpath", path))[0].click()


def test_it_opens_with_what_the_run_is_and_with_its_results_in_order(shown):
    text = shown.find_element("id", "app").text
    assert "Models: tiny-base, tiny-chat. Data sets: capitals, rulers." in text
    for category, names in PLACES.items():
        press(shown, category)
        for name in names:
            until(lambda name=name: name in shown.find_element("tag name", "nav").text)
        shown.refresh()
        until(lambda: "The run mine" in shown.find_element("id", "app").text)


def test_a_figure_is_drawn_and_its_caption_says_how_to_read_it(shown):
    press(shown, "Figures", "ΔP against layer")
    icon(shown, "delta_p", "eye")
    until(lambda: shown.execute_script("return document.querySelector('#app .p-3 > img')?.naturalWidth"))
    icon(shown, "delta_p", "information-circle")
    until(lambda: "lies below zero by construction" in shown.find_element("tag name", "nav").text)


def test_the_interactive_figure_works_inside_the_report(shown):
    press(shown, "Figures", "ΔP against layer")
    icon(shown, "delta_p_interactive", "eye")
    shown.switch_to.frame(until(lambda: shown.find_elements("tag name", "iframe"))[0])
    until(lambda: len(shown.find_elements("css selector", "g.role-legend-label text")) == 4)


def test_provenance_is_a_page_with_revisions_and_configuration(shown, reported):
    press(shown, "Provenance")
    icon(shown, "Provenance", "eye")
    shown.switch_to.frame(until(lambda: shown.find_elements("tag name", "iframe"))[0])
    text = until(lambda: shown.find_element("tag name", "body").text)
    revision = read_metadata(reported / "answers.parquet")["provenance"]["inputs"][0]["inputs"]["model_revision"]
    for fact in (revision, "tiny-base", "rulers", "torch", "position: exact_answer_last"):
        assert fact in text


def test_every_rule_has_its_run_time(shown):
    press(shown, "Statistics")
    text = until(lambda: shown.execute_script("return JSON.stringify(runtimes_spec)"))
    for rule in ("inference", "probes", "delta_p", "figure_groups"):
        assert rule in text


def test_no_console_error_and_no_request_leaves_the_file(shown, reported):
    press(shown, "Figures", "Groups")
    icon(shown, "groups", "eye")
    until(lambda: shown.execute_script("return document.querySelector('#app .p-3 > img')?.naturalWidth"))
    assert messages(shown, "SEVERE") == []
    assert set(requests(shown)) == {(reported / "report.html").as_uri()}


def test_the_configuration_is_the_runs_with_its_overrides(reported):
    assert yaml.safe_load((reported / "config.yaml").read_text("utf-8"))["figures"] == FIGURES
    found = json.loads((reported / "provenance.json").read_text("utf-8"))["configuration"]
    assert found["run"]["figures"] == list(found["figures"]) == FIGURES
    assert found["run"]["probe"]["kind"] == "logistic"  # a default
    assert found["datasets"]["rulers"]["label"] == "Rulers"  # a definition


def test_a_figure_is_drawn_from_the_archive_on_another_machine(reported, tmp_path):
    with zipfile.ZipFile(reported / "mine.zip") as archive:
        archive.extractall(tmp_path)
        names = archive.namelist()
    for name in ("README.md", "CITATION.cff", "config.yaml", "provenance.json", "delta_p_summary.csv",
                 "figures/delta_p.svg", "figures/delta_p_interactive.html", "samples.md", "verdict.json"):  # fmt: skip
        assert f"mine/{name}" in names
    # What loads a model cannot be imported there.
    for name in ("torch", "transformers", "sklearn"):
        (tmp_path / f"{name}.py").write_text("raise ImportError('not for figures')")
    script = shutil.copytree(ROOT / "scripts", tmp_path / "scripts") / "plot_delta_p.py"
    drawn = subprocess.run(
        [sys.executable, script, "--table", "mine", "--out", "again.svg"], cwd=tmp_path, text=True,
        env={"PATH": "/usr/bin:/bin", "PYTHONPATH": f"{tmp_path}:{ROOT / 'workflow'}"}, capture_output=True,
    )  # fmt: skip
    assert drawn.returncode == 0, drawn.stderr
    assert ">Tiny (chat)<" in (tmp_path / "again.svg").read_text("utf-8")


def test_packing_again_gives_the_same_bytes(reported, configfile):
    before = (reported / "mine.zip").read_bytes()
    again = ["--forcerun", "provenance", "figure_groups", "--config", f"figures={json.dumps(FIGURES)}"]
    done = snakemake(configfile.parent, configfile, "export", *again)
    assert planned(done.stdout) == {"figure_groups": 1, "provenance": 1, "export": 1}
    assert (reported / "mine.zip").read_bytes() == before
