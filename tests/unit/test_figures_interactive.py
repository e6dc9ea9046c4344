"""The interactive figure, tried in a real browser: what it shows, what a click does, and that it needs no network."""

import re
import time
from pathlib import Path

import pytest

import synthetic
from browsing import messages, open_afresh, requests, until
from deltap.errors import DeltapError
from deltap.figures.kinds import write
from deltap.settings import DeltaPFigure, FigureEntry, GroupsFigure, PlotStage, TableSource

SCRIPT = Path(__file__).parents[2] / "scripts" / "plot.py"

CURVES = [f"{anchor}-Anchored ({name})" for name in synthetic.LABELS["dataset"].values() for anchor in "QA"]
# Curves of a panel, as [opacity, …] in the order of the legend.
OPACITIES = """
const panels = [...document.querySelectorAll('g.role-scope')].map(
  panel => [...panel.querySelectorAll(':scope > g > g > g.mark-line.role-mark > path')]);
return panels.filter(lines => lines.length).map(
  lines => lines.map(line => Number(line.getAttribute('opacity') ?? 1)));
"""


def draw(path: Path, entry: FigureEntry | None = None) -> None:
    write(SCRIPT, entry or DeltaPFigure(), PlotStage(figures={}), [TableSource(path=str(path.parent))], [path])


@pytest.fixture(scope="module")
def page(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("interactive")
    synthetic.write_run(folder, 40)
    draw(folder / "figure.html")
    return folder / "figure.html"


@pytest.fixture
def shown(browser, page):
    """The page, drawn."""
    browser.get(page.as_uri())
    until(lambda: len(browser.execute_script(OPACITIES)) == 2)
    return browser


def legend(browser):
    """The legend's entries, by their text."""
    entries = browser.find_elements("css selector", "g.role-legend g.mark-text.role-legend-label text")
    return {entry.text: entry for entry in entries}


def test_it_shows_two_panels_of_eight_curves_and_their_legend_in_order(shown):
    assert [len(panel) for panel in shown.execute_script(OPACITIES)] == [8, 8]
    assert list(legend(shown)) == CURVES
    text = shown.find_element("tag name", "svg").text
    for words in ("Qwen3-8B", "Qwen3-32B", "ΔP", "Layer"):
        assert words in text


def test_a_click_in_the_legend_isolates_a_curve_and_a_double_click_brings_all_back(shown):
    from selenium.webdriver import ActionChains

    assert shown.execute_script(OPACITIES) == [[1] * 8, [1] * 8]
    ActionChains(shown).click(legend(shown)["A-Anchored (TriviaQA)"]).perform()
    alone = [[1 if curve == "A-Anchored (TriviaQA)" else 0 for curve in CURVES]] * 2
    until(lambda: [[round(value) for value in panel] for panel in shown.execute_script(OPACITIES)] == alone)
    (title, *_) = shown.find_elements("css selector", "g.role-title-text text")
    ActionChains(shown).double_click(title).perform()
    until(lambda: shown.execute_script(OPACITIES) == [[1] * 8, [1] * 8])


def test_the_mouse_over_a_point_reads_layer_mean_interval_and_n(shown):
    from selenium.webdriver import ActionChains

    point = shown.find_elements("css selector", "g.mark-symbol.role-mark path")[10]
    ActionChains(shown).move_to_element(point).perform()
    tip = until(lambda: shown.find_element("id", "vg-tooltip-element").text)
    for key in ("curve", "layer", "mean ΔP", "interval from", "to", "n"):
        assert re.search(rf"^{key}\b", tip, re.MULTILINE), tip


def test_no_console_error_and_no_request_leaves_the_file(browser, page):
    open_afresh(browser, page.as_uri())
    until(lambda: len(browser.execute_script(OPACITIES)) == 2)
    time.sleep(0.5)
    assert messages(browser, "SEVERE", "WARNING") == []
    assert set(requests(browser)) == {page.as_uri()}


def test_the_file_holds_its_scripts_and_says_what_made_it(page):
    text = page.read_text("utf-8")
    assert not re.search(r"<(script|link)[^>]+(src|href)=", text)
    assert "<title>ΔP against layer</title>" in text
    assert "settings_digest" in re.search(r'<meta name="description" content="([^"]*)"', text).group(1)


def test_the_same_table_gives_the_same_bytes(page):
    first = page.read_bytes()
    draw(page)
    assert page.read_bytes() == first


def test_other_kinds_have_no_interactive_version(page):
    with pytest.raises(DeltapError, match="groups has no interactive version"):
        draw(page, GroupsFigure(kind="groups"))
