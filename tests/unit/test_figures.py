"""The figure of ΔP against layer, read back from the figure object and from the written files."""

import importlib.util
import json
import re
import subprocess
import sys
import zlib
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import matplotlib
import matplotlib.pyplot as plt
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from matplotlib.colors import to_hex, to_rgb
from matplotlib.figure import Figure
from PIL import Image

from deltap.errors import DeltapError
from deltap.figures import delta_p
from deltap.figures.save import save
from deltap.figures.style import colours, delta_p_limits, layer_ticks
from deltap.settings import ANCHORS, DeltaPFigure
from deltap.tables import SUMMARY, write_table
from synthetic import LABELS, PAPER

SCRIPT = Path(__file__).parents[2] / "scripts" / "plot_delta_p.py"

# The main figure's legend: entry, colour (matplotlib's names of tab10) and line.
LEGEND = [
    ("Q-Anchored (PopQA)", "tab:blue", "-"),
    ("A-Anchored (PopQA)", "tab:orange", "--"),
    ("Q-Anchored (TriviaQA)", "tab:green", "-"),
    ("A-Anchored (TriviaQA)", "tab:red", "--"),
    ("Q-Anchored (HotpotQA)", "tab:purple", "-"),
    ("A-Anchored (HotpotQA)", "tab:brown", "--"),
    ("Q-Anchored (NQ)", "tab:pink", "-"),
    ("A-Anchored (NQ)", "tab:gray", "--"),
]


def row(layer: int = 0, **values: Any) -> dict[str, Any]:
    return {
        "model": "m",
        "dataset": "d",
        "extractor": "auto",
        "intervention": "exact_question",
        "estimate": "plain",
        "grouping": "per_layer",
        "anchor": "q_anchored",
        "site": "attn",
        "position": "exact_answer_last",
        "layer": layer,
        "n": 10,
        "mean": -2.0 * layer,
        "ci_low": -2.0 * layer - 3,
        "ci_high": -2.0 * layer + 3,
    } | values


def empty(layer: int, **values: Any) -> dict[str, Any]:
    return row(layer, n=0, mean=None, ci_low=None, ci_high=None, **values)


def single(layer: int, **values: Any) -> dict[str, Any]:
    return row(layer, n=1, ci_low=None, ci_high=None, **values)


def summary(rows: list[dict[str, Any]]) -> pa.Table:
    return pa.Table.from_pylist(rows, schema=SUMMARY)


def paper(models: dict[str, int], datasets: list[str], **values: object) -> pa.Table:
    """Return a summary in which Q-Anchored falls with depth and A-Anchored stays at -1."""
    return summary(
        [
            row(layer, model=model, dataset=dataset, anchor=anchor, mean=mean, ci_low=mean - 2, ci_high=mean + 2)
            | values
            for model, layers in models.items()
            for dataset in datasets
            for anchor in ANCHORS
            for layer in range(layers)
            for mean in [-70 * layer / layers if anchor == "q_anchored" else -1.0]
        ]
    )


def draw(table: pa.Table, entry: DeltaPFigure, labels: dict, anchors: Sequence[str] | None = None) -> Figure:
    entry = entry.model_copy(update={"anchors": anchors and tuple(anchors)})
    return delta_p.draw(table.to_pandas(), entry, {"model": {}, "dataset": {}, **labels})


def draw_main_figure(entry: DeltaPFigure) -> Figure:
    return draw(paper(PAPER, list(LABELS["dataset"])), entry, LABELS)


@cache
def main_figure() -> Figure:
    """Return the main figure, which tests look at and do not change."""
    return draw_main_figure(DeltaPFigure())


def legend_texts(figure: Figure) -> list[str]:
    (legend,) = figure.legends
    return [text.get_text() for text in legend.get_texts()]


def curves(figure: Figure, panel: int = 0) -> dict[str, Any]:
    """Return the curves of a panel by their label."""
    lines: Any = figure.axes[panel].lines
    return {line.get_label(): line for line in lines if not line.get_label().startswith("_")}


def bands(figure: Figure) -> tuple[Any, Any]:
    """Return the first curve's band, and the strokes that stand for bands of one layer."""
    band, strokes = figure.axes[0].collections[:2]
    return band, strokes


def places(figure: Figure) -> list[tuple[int, int]]:
    """Return row and column of each panel."""
    specs: list[Any] = [panel.get_subplotspec() for panel in figure.axes]
    return [(spec.rowspan.start, spec.colspan.start) for spec in specs]


def notes(figure: Figure, panel: int = 0) -> str:
    return "\n".join(text.get_text() for text in figure.axes[panel].texts).strip()


def test_main_figure_has_the_panels_axes_and_ticks_of_the_paper():
    figure = main_figure()
    left, right = figure.axes
    assert [left.get_title(), right.get_title()] == ["Qwen3-8B", "Qwen3-32B"]
    assert [left.get_xlabel(), right.get_xlabel()] == ["Layer", "Layer"]
    assert [left.get_ylabel(), right.get_ylabel()] == ["ΔP", ""]
    assert list(left.get_xticks()) == [0, 10, 20, 30]
    assert list(right.get_xticks()) == [0, 20, 40, 60]
    for panel in (left, right):
        assert panel.get_ylim() == (-100, 20)
        assert list(panel.get_yticks()) == [-100, -80, -60, -40, -20, 0, 20]
    assert left.get_position().x1 < right.get_position().x0


def test_main_figure_has_one_legend_in_the_order_colours_and_lines_of_the_paper():
    figure = main_figure()
    (legend,) = figure.legends
    found = [
        (text, to_hex(line.get_color()), line.get_linestyle())
        for text, line in zip(legend_texts(figure), legend.get_lines(), strict=True)
    ]
    assert found == [(text, to_hex(colour), line) for text, colour, line in LEGEND]


def test_legend_stands_below_the_panels_inside_the_figure():
    figure = main_figure()
    figure.draw_without_rendering()
    box = figure.legends[0].get_window_extent()
    assert box.y1 < min(panel.xaxis.label.get_window_extent().y0 for panel in figure.axes)
    assert box.x0 >= 0
    assert box.x1 <= figure.bbox.width


def test_every_panel_draws_every_curve_as_the_legend_says():
    figure = main_figure()
    for panel, layers in enumerate(PAPER.values()):
        drawn = curves(figure, panel)
        assert [(text, to_hex(line.get_color()), line.get_linestyle()) for text, line in drawn.items()] == [
            (text, to_hex(colour), line) for text, colour, line in LEGEND
        ]
        for line in drawn.values():
            assert list(line.get_xdata()) == list(range(layers))


def test_a_band_spans_the_interval_in_its_curves_colour():
    figure = draw(summary([row(0), row(1), row(2)]), DeltaPFigure(), {}, ["q_anchored"])
    band, _ = bands(figure)
    (path,) = band.get_paths()
    assert {tuple(point) for point in path.vertices} >= {(0, -3), (0, 3), (1, -5), (1, 1), (2, -7), (2, -1)}
    assert to_hex(band.get_facecolor()[0]) == to_hex("tab:blue")


def test_layers_without_samples_are_gaps_and_lone_layers_are_marked():
    figure = draw(summary([row(0), row(1), empty(2), single(3), empty(4), row(5)]), DeltaPFigure(), {})
    (line,) = [line for label, line in curves(figure).items() if label.startswith("Q")]
    np.testing.assert_array_equal(line.get_ydata(), [0, -2, np.nan, -6, np.nan, -10])
    assert line.get_markevery() == [3, 5]
    assert line.get_marker() == "o"


def test_an_absent_row_is_a_gap_like_an_empty_one():
    figure = draw(summary([row(0), row(2)]), DeltaPFigure(), {})
    np.testing.assert_array_equal(curves(figure)["Q-Anchored (d)"].get_ydata(), [0, np.nan, -4])


def test_single_samples_have_no_band_and_a_lone_band_is_a_stroke():
    figure = draw(summary([row(0), row(1), single(2), row(3), single(4)]), DeltaPFigure(), {}, ["q_anchored"])
    band, strokes = bands(figure)
    assert {x for path in band.get_paths() for x in path.vertices[:, 0]} <= {0, 1, 3}
    np.testing.assert_array_equal(strokes.get_segments(), [[[3, -9], [3, -3]]])


def test_a_data_set_without_flips_keeps_its_legend_entry_and_is_noted():
    rows = [row(layer, dataset="popqa") for layer in range(3)]
    rows += [empty(layer, dataset="nq") for layer in range(3)]
    rows += [row(layer, dataset=dataset, anchor="a_anchored") for layer in range(3) for dataset in ("popqa", "nq")]
    figure = draw(summary(rows), DeltaPFigure(), LABELS)
    assert "Q-Anchored (NQ)" in legend_texts(figure)
    assert notes(figure) == "no Q-Anchored samples: NQ"


def test_a_data_set_that_one_model_lacks_is_noted_there():
    rows = [row(model="a", anchor=anchor, dataset=dataset) for anchor in ANCHORS for dataset in ("x", "y")]
    rows += [row(model="b", anchor=anchor, dataset="x") for anchor in ANCHORS]
    figure = draw(summary(rows), DeltaPFigure(), {})
    assert notes(figure, 0) == ""
    assert notes(figure, 1) == "no data: y"


def test_only_the_asked_for_anchors_are_drawn_in_their_usual_colours():
    figure = draw(paper({"m": 5}, ["x", "y"]), DeltaPFigure(), {}, ["a_anchored"])
    assert legend_texts(figure) == ["A-Anchored (x)", "A-Anchored (y)"]
    assert [to_hex(line.get_color()) for line in figure.legends[0].get_lines()] == [
        to_hex("tab:orange"),
        to_hex("tab:red"),
    ]


def test_labels_decide_the_order_and_slugs_without_label_follow_as_they_appear():
    labels = {"dataset": {"y": "Why", "absent": "Absent", "x": "Ex"}}
    figure = draw(paper({"m": 3}, ["w", "x", "y"]), DeltaPFigure(), labels, ["q_anchored"])
    assert legend_texts(figure) == ["Q-Anchored (Why)", "Q-Anchored (Ex)", "Q-Anchored (w)"]
    assert figure.axes[0].get_title() == "m"


def test_a_data_set_keeps_its_colour_when_others_are_left_out():
    figure = draw(paper(PAPER, ["nq"]), DeltaPFigure(), LABELS)
    assert [to_hex(line.get_color()) for line in figure.legends[0].get_lines()] == [
        to_hex("tab:pink"),
        to_hex("tab:gray"),
    ]


def test_one_model_makes_one_panel():
    figure = draw(paper({"qwen3-8b": 36}, ["popqa"]), DeltaPFigure(), LABELS)
    assert [panel.get_title() for panel in figure.axes] == ["Qwen3-8B"]


def test_twelve_models_wrap_to_rows_of_four_that_share_the_y_axis():
    models = {f"a-model-with-a-long-name-{number}": 20 + number for number in range(12)}
    figure = draw(paper(models, ["x"]), DeltaPFigure(), {})
    figure.draw_without_rendering()
    assert [panel.get_title() for panel in figure.axes] == list(models)
    assert places(figure) == [(number // 4, number % 4) for number in range(12)]
    assert {panel.get_ylim() for panel in figure.axes} == {(-100, 20)}
    for panel in figure.axes:
        assert panel.title.get_window_extent().width <= panel.bbox.width + 1


def test_five_models_make_rows_of_three_and_two():
    figure = draw(paper(dict.fromkeys("abcde", 4), ["x"]), DeltaPFigure(), {})
    assert places(figure) == [
        (0, 0),
        (0, 1),
        (0, 2),
        (1, 0),
        (1, 1),
    ]


def test_a_single_layer_is_drawn():
    figure = draw(summary([row(0)]), DeltaPFigure(), {})
    assert list(figure.axes[0].get_xticks()) == [0]
    assert curves(figure)["Q-Anchored (d)"].get_markevery() == [0]


@pytest.mark.parametrize("number", [5, 6, 7, 11])
def test_a_longer_legend_keeps_the_two_anchors_of_a_data_set_in_one_column(number):
    figure = draw(paper({"m": 4}, [f"set {i}" for i in range(number)]), DeltaPFigure(), {})
    figure.draw_without_rendering()
    texts = figure.legends[0].get_texts()[: 2 * number]
    assert [text.get_text() for text in texts] == [f"{a}-Anchored (set {i})" for i in range(number) for a in "QA"]
    left = [text.get_window_extent().x0 for text in texts]
    assert left[0::2] == pytest.approx(left[1::2], abs=1)


def test_the_legend_takes_fewer_columns_where_the_figure_is_narrow():
    figure = draw(paper({"m": 4}, list(LABELS["dataset"])), DeltaPFigure(width=3.4), LABELS)
    figure.draw_without_rendering()
    assert figure.legends[0].get_window_extent().width <= figure.bbox.width
    assert legend_texts(figure) == [text for text, _, _ in LEGEND]


def test_redundant_gives_each_data_set_its_marker():
    figure = draw_main_figure(DeltaPFigure(redundant="markers"))
    markers = [line.get_marker() for line in figure.legends[0].get_lines()]
    assert markers[0::2] == markers[1::2]
    assert len(set(markers)) == 4
    assert [line.get_marker() for line in curves(figure).values()] == markers


def test_show_n_gives_the_range_of_n_over_panels_and_layers():
    rows = [row(0, n=5), row(1, n=8), row(0, model="other", n=40), row(0, anchor="a_anchored", n=7)]
    figure = draw(summary(rows), DeltaPFigure(show_n=True), {})
    assert legend_texts(figure) == ["Q-Anchored (d), n = 5–40", "A-Anchored (d), n = 7"]


def test_data_beyond_the_limits_extend_the_axis_for_all_panels():
    rows = [row(0, model="a", mean=-104.0), row(0, model="b", ci_high=41.0)]
    figure = draw(summary(rows), DeltaPFigure(), {})
    for panel in figure.axes:
        assert panel.get_ylim() == (-110, 50)
        assert list(panel.get_yticks()) == list(range(-100, 41, 20))


def test_without_lower_limit_the_axis_reaches_down_to_the_data():
    figure = draw(summary([row(0), row(1, mean=-33.0, ci_low=-36.0)]), DeltaPFigure(y_min=None), {})
    assert figure.axes[0].get_ylim() == (-40, 20)


finite = st.floats(-100, 100)


@given(st.lists(finite | st.just(float("nan"))), st.none() | finite, finite)
def test_limits_hold_every_value_and_what_is_asked_for(values, y_min, y_max):
    low, high = delta_p_limits(np.array(values, float), y_min, y_max)
    assert all(low <= value <= high for value in values if not np.isnan(value))
    assert high >= y_max
    assert y_min is None or low <= y_min


@pytest.mark.parametrize(
    ("layers", "step"), [(2, 1), (5, 1), (6, 2), (9, 2), (10, 5), (21, 5), (30, 10), (36, 10), (64, 20), (126, 50)]
)
def test_layer_ticks_have_the_smallest_round_step(layers, step):
    assert layer_ticks(layers) == list(range(0, layers, step))


@given(st.integers(1, 2000))
def test_layer_ticks_make_at_most_four_intervals(layers):
    ticks = layer_ticks(layers)
    assert len(ticks) <= 5
    assert ticks[0] == 0
    assert ticks[-1] < layers


@pytest.mark.parametrize("number", range(1, 30))
def test_no_two_curves_have_one_colour(number):
    found = [colour for pair in colours("tab10", number) for colour in pair.values()]
    assert len(set(found)) == 2 * number


def test_more_than_five_data_sets_have_pairs_of_a_dark_and_a_light_tone():
    first = colours("tab10", 6)[0]
    assert to_hex(first["q_anchored"]) == to_hex("tab:blue")
    assert sum(first["a_anchored"]) > sum(first["q_anchored"])


def test_an_unknown_palette_is_refused():
    with pytest.raises(DeltapError, match="palette: 'tab11'"):
        draw(summary([row()]), DeltaPFigure(palette="tab11"), {})


def test_two_rows_for_one_point_are_refused():
    with pytest.raises(DeltapError, match="two rows for model m, dataset d, anchor q_anchored, layer 0"):
        draw(summary([row(), row(site="mlp")]), DeltaPFigure(), {})


def test_samples_without_a_mean_are_refused():
    with pytest.raises(DeltapError, match="no mean for model m, dataset d, anchor q_anchored, layer 7"):
        draw(summary([row(), row(7, mean=float("nan"))]), DeltaPFigure(), {})


def test_a_table_without_rows_is_refused():
    with pytest.raises(DeltapError, match="no rows"):
        draw(summary([]), DeltaPFigure(), {})


def test_drawing_leaves_matplotlib_as_it_was():
    before = dict(matplotlib.rcParams)
    draw_main_figure(DeltaPFigure())
    assert dict(matplotlib.rcParams) == before
    assert not plt.get_fignums()


@pytest.mark.parametrize("kind", ["png", "pdf", "svg"])
def test_the_same_figure_gives_the_same_bytes_without_a_date(tmp_path, kind):
    for name in ("first", "second"):
        save(draw_main_figure(DeltaPFigure()), tmp_path / f"{name}.{kind}", "made by a test")
    content = (tmp_path / f"first.{kind}").read_bytes()
    assert content == (tmp_path / f"second.{kind}").read_bytes()
    assert b"made by a test" in content
    assert b"CreationDate" not in content
    assert b"dc:date" not in content


def test_png_has_300_dots_per_inch_at_the_configured_size(tmp_path):
    save(main_figure(), tmp_path / "figure.png", "")
    with Image.open(tmp_path / "figure.png") as image:
        assert image.size == (1890, 960)
        assert image.info["dpi"] == pytest.approx((300, 300), abs=0.1)


def test_svg_keeps_text_as_text(tmp_path):
    save(main_figure(), tmp_path / "figure.svg", "")
    content = (tmp_path / "figure.svg").read_text("utf-8")
    for text in ("ΔP", "Layer", "Qwen3-32B", "A-Anchored (HotpotQA)"):
        assert f">{text}</text>" in content


def test_pdf_embeds_a_truetype_font(tmp_path):
    save(main_figure(), tmp_path / "figure.pdf", "")
    content = (tmp_path / "figure.pdf").read_bytes()
    assert b"/FontFile2" in content
    assert b"DejaVuSans" in content
    assert b"/Type3" not in content


def test_another_suffix_is_refused(tmp_path):
    with pytest.raises(DeltapError, match="png, pdf, svg, html, not 'jpg'"):
        save(main_figure(), tmp_path / "figure.jpg", "")
    assert not list(tmp_path.iterdir())


def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("plot_delta_p", SCRIPT)
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_script_writes_each_file_and_says_in_it_what_made_it(tmp_path):
    labels = {kind: list(names.items()) for kind, names in LABELS.items()}
    write_table(tmp_path / "t.parquet", paper(PAPER, list(LABELS["dataset"])), SUMMARY, {"labels": labels})
    module = script()
    command = ["--table", f"{tmp_path}/t.parquet", "--out", f"{tmp_path}/a.svg", "--out", f"{tmp_path}/b/a.png"]
    command += ["--settings", json.dumps({"site": None, "redundant": "markers"}), "--models", "qwen3-8b"]
    module.main(module.arguments().parse_args(command))
    content = (tmp_path / "a.svg").read_text("utf-8")
    assert "Qwen3-8B" in content
    assert "Qwen3-32B" not in content
    with Image.open(tmp_path / "b" / "a.png") as image:
        made_by = json.loads(image.info["Description"])
    assert made_by["stage"] == "plot_delta_p"
    (entry,) = made_by["settings"]["figures"].values()
    assert (entry["redundant"], entry["models"]) == ("markers", ["qwen3-8b"])


def test_script_ends_with_one_message_and_needs_no_model_library(tmp_path):
    pq.write_table(pa.table({"layer": [0]}), tmp_path / "t.parquet")
    command = [SCRIPT, "--table", tmp_path / "t.parquet", "--out", tmp_path / "a.png"]
    done = subprocess.run([sys.executable, "-X", "importtime", *command], capture_output=True, text=True, check=False)
    messages = [line for line in done.stderr.splitlines() if not line.startswith("import time:")]
    imported = {line.split("|")[-1].strip() for line in done.stderr.splitlines()}
    assert done.returncode == 1
    assert len(messages) == 1
    assert messages[0].startswith(f"error: {tmp_path}/t.parquet: missing columns model, dataset")
    assert "matplotlib.figure" in imported
    assert not {"torch", "transformers", "deltap.delta_p"} & imported


def script_file(tmp_path: Path, *arguments: str) -> str:
    """Run the script for an SVG of the main figure's table and return the SVG."""
    labels = {kind: list(names.items()) for kind, names in LABELS.items()}
    table = tmp_path / "t.parquet"
    write_table(table, paper(PAPER, list(LABELS["dataset"])), SUMMARY, {"labels": labels})
    module = script()
    module.main(module.arguments().parse_args(["--table", str(table), "--out", f"{tmp_path}/a.svg", *arguments]))
    return (tmp_path / "a.svg").read_text("utf-8")


def test_every_key_of_the_settings_is_an_option_of_the_script(tmp_path):
    text = script_file(
        tmp_path, "--models", "qwen3-32b", "qwen3-8b", "--datasets", "nq", "popqa", "--anchors", "q_anchored",
        "--x", "depth", "--y-min", "null", "--width", "3.5", "--show-n", "--palette", "black", "red", "green", "blue",
        "yellow", "navy", "pink", "gray", "--redundant", "dashes",
    )  # fmt: skip
    assert text.index(">Qwen3-32B<") < text.index(">Qwen3-8B<")
    assert text.index(">Q-Anchored (NQ), n = 10<") < text.index(">Q-Anchored (PopQA), n = 10<")
    assert "A-Anchored" not in text
    assert ">Depth<" in text
    assert ">−100<" not in text
    assert 'width="252pt"' in text
    assert "stroke: #000000" in text


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--x", "height"], "--x: expected 'layer' or 'depth' (found: 'height')"),
        (["--interval", "2"], "--interval: expected less than 1"),
        (["--models", "qwen"], "'qwen'"),
        (["--reference-class", "gold"], "a summary has its reference class already; give the run's anchors.parquet"),
        (["--interval", "0.9"], "a summary has its interval already; give the run's anchors.parquet"),
        (["--label", "a", "b"], "--label: 2 labels for 1 tables"),
    ],
)
def test_a_wrong_option_is_refused_by_name(tmp_path, arguments, message):
    with pytest.raises(DeltapError) as caught:
        script_file(tmp_path, *arguments)
    assert message in str(caught.value)


def test_depth_runs_from_0_to_1_whatever_the_number_of_layers():
    figure = draw(paper({"a": 5, "b": 9}, ["x"]), DeltaPFigure(x="depth"), {})
    for panel, layers in enumerate((5, 9)):
        line = curves(figure, panel)["Q-Anchored (x)"]
        np.testing.assert_allclose(line.get_xdata(), np.linspace(0, 1, layers))
        assert figure.axes[panel].get_xlabel() == "Depth"
        assert list(figure.axes[panel].get_xticks()) == [0, 0.25, 0.5, 0.75, 1]
    assert draw(summary([row(0)]), DeltaPFigure(x="depth"), {}).axes[0].get_xlabel() == "Depth"


def test_dashes_tell_every_curve_apart_and_leave_q_anchored_nearly_solid():
    figure = draw_main_figure(DeltaPFigure(redundant="dashes"))
    lines = figure.legends[0].get_lines()
    patterns = [line._dash_pattern[1] for line in lines]
    assert len({str(pattern) for pattern in patterns}) == 8
    inked = [1 if pattern is None else sum(pattern[0::2]) / sum(pattern) for pattern in patterns]
    assert min(inked[0::2]) > 0.7 > max(inked[1::2])


def luminance(colour: Any) -> float:
    return float(np.dot(to_rgb(colour), (0.299, 0.587, 0.114)))


def test_redundant_curves_differ_without_any_colour():
    for redundant in ("markers", "dashes"):
        lines = draw_main_figure(DeltaPFigure(redundant=redundant)).legends[0].get_lines()
        assert len({(str(line._dash_pattern), line.get_marker()) for line in lines}) == 8
        assert all(luminance(line.get_color()) < 0.7 for line in lines)  # dark enough on white paper


def test_a_curve_is_thin_where_its_means_rest_on_few_samples_and_a_note_says_so():
    n = [3, 3, 12, 12, 12, 9]
    rows = [row(layer, n=number) for layer, number in enumerate(n)]
    figure = draw(summary(rows), DeltaPFigure(thin_below=10), {}, ["q_anchored"])
    (whole,) = curves(figure).values()
    (thick,) = [line for line in figure.axes[0].lines if line.get_label() == "_thick"]
    np.testing.assert_array_equal(np.isfinite(thick.get_ydata()), [False, False, True, True, True, False])
    assert whole.get_linewidth() < 0.6 * thick.get_linewidth()
    assert notes(figure) == "thin: n < 10"
    (entry,) = figure.legends[0].get_lines()
    assert entry.get_linewidth() == thick.get_linewidth()


def test_without_a_threshold_nothing_is_thin():
    figure = draw(summary([single(0), single(1)]), DeltaPFigure(thin_below=0), {}, ["q_anchored"])
    assert len(figure.axes[0].lines) == 2  # the curve and zero
    assert notes(figure) == ""


@pytest.mark.parametrize(("width", "inches"), [("one-column", 3.03), ("two-columns", 6.3), (5.5, 5.5)])
def test_widths_of_papers_have_names(width, inches):
    assert draw_main_figure(DeltaPFigure(width=width)).get_size_inches()[0] == pytest.approx(inches)


def test_the_legend_has_four_columns_at_two_columns_width_and_two_on_request():
    for columns, found in ((4, 4), (2, 2)):
        assert draw_main_figure(DeltaPFigure(columns=columns)).legends[0]._ncols == found


def test_font_size_scales_text_and_lines():
    small, large = (draw_main_figure(DeltaPFigure(font_size=size)) for size in (6, 12))
    for get in (
        lambda figure: figure.legends[0].get_texts()[0].get_fontsize(),
        lambda figure: figure.axes[0].xaxis.label.get_fontsize(),
        lambda figure: curves(figure)["Q-Anchored (PopQA)"].get_linewidth(),
    ):
        assert get(large) == pytest.approx(2 * get(small))


def test_panels_per_row_stacks_models():
    assert places(draw_main_figure(DeltaPFigure(panels_per_row=1))) == [(0, 0), (1, 0)]


def test_everything_stands_inside_the_figure():
    for entry in (DeltaPFigure(), DeltaPFigure(width="one-column", panels_per_row=1, font_size=7)):
        figure = draw_main_figure(entry)
        box = figure.get_tightbbox()
        width, height = figure.get_size_inches()
        assert box.x0 >= 0
        assert box.y0 >= 0
        assert box.x1 <= width
        assert box.y1 <= height


def test_a_notice_stands_above_the_panels():
    figure = delta_p.draw(paper({"m": 3}, ["x"]).to_pandas(), DeltaPFigure(), LABELS, "Incomplete: 1 of 2")
    assert figure.get_suptitle() == "Incomplete: 1 of 2"


def test_a_palette_is_a_name_of_matplotlib_or_seaborn_or_a_list_of_colours():
    assert to_hex(colours("tab10", 4)[1]["a_anchored"]) == to_hex("tab:red")
    assert to_hex(colours("colorblind", 4)[0]["q_anchored"]) == "#0173b2"  # seaborn's
    assert colours(("black", "white"), 1) == [{"q_anchored": (0, 0, 0), "a_anchored": (1, 1, 1)}]
    assert len({*map(str, colours("viridis", 4))}) == 4
    with pytest.raises(DeltapError, match="palette"):
        colours(("blak", "white"), 1)


def test_the_pdf_says_delta_as_text(tmp_path):
    save(main_figure(), tmp_path / "figure.pdf", "")
    content = (tmp_path / "figure.pdf").read_bytes()
    streams = [zlib.decompress(stream) for stream in re.findall(rb"stream\r?\n(.*?)endstream", content, re.DOTALL)
               if stream[:1] == b"x"]  # fmt: skip
    assert any(b"<0394>" in stream for stream in streams if b"beginbfrange" in stream)  # Δ


def test_a_note_stands_where_it_covers_no_curve():
    rows = [row(layer, mean=15.0, n=5) for layer in range(10)]
    figure = draw(summary(rows), DeltaPFigure(), {}, ["q_anchored"])
    (text,) = figure.axes[0].texts
    assert text.get_position()[1] < 0.5
    low = [row(layer, mean=-50.0, n=5) for layer in range(10)]
    (text,) = draw(summary(low), DeltaPFigure(), {}, ["q_anchored"]).axes[0].texts
    assert text.get_position() == (0.99, 0.99)
