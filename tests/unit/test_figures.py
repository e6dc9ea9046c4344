"""The figure of ΔP against layer, read back from the figure object and from the written files."""

import importlib.util
import json
import subprocess
import sys
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
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from PIL import Image

from deltap.errors import DeltapError
from deltap.figures.delta_p import draw
from deltap.figures.save import save
from deltap.figures.style import colours, delta_p_limits, layer_ticks
from deltap.figures.summary import read_labels, read_summaries, select
from deltap.settings import ANCHORS, BootstrapSettings, FigureEntry
from deltap.tables import DELTA_P, SUMMARY, write_table

SCRIPT = Path(__file__).parents[2] / "scripts" / "plot_delta_p.py"
LABELS = {
    "model": {"qwen3-8b": "Qwen3-8B", "qwen3-32b": "Qwen3-32B"},
    "dataset": {"popqa": "PopQA", "triviaqa": "TriviaQA", "hotpotqa": "HotpotQA", "nq": "NQ"},
}
PAPER = {"qwen3-8b": 36, "qwen3-32b": 64}

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


def draw_main_figure(entry: FigureEntry) -> Figure:
    return draw(paper(PAPER, list(LABELS["dataset"])), entry, LABELS)


@cache
def main_figure() -> Figure:
    """Return the main figure, which tests look at and do not change."""
    return draw_main_figure(FigureEntry())


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
    figure = draw(summary([row(0), row(1), row(2)]), FigureEntry(), {}, ["q_anchored"])
    band, _ = bands(figure)
    (path,) = band.get_paths()
    assert {tuple(point) for point in path.vertices} >= {(0, -3), (0, 3), (1, -5), (1, 1), (2, -7), (2, -1)}
    assert to_hex(band.get_facecolor()[0]) == to_hex("tab:blue")


def test_layers_without_samples_are_gaps_and_lone_layers_are_marked():
    figure = draw(summary([row(0), row(1), empty(2), single(3), empty(4), row(5)]), FigureEntry(), {})
    (line,) = [line for label, line in curves(figure).items() if label.startswith("Q")]
    np.testing.assert_array_equal(line.get_ydata(), [0, -2, np.nan, -6, np.nan, -10])
    assert line.get_markevery() == [3, 5]
    assert line.get_marker() == "o"


def test_an_absent_row_is_a_gap_like_an_empty_one():
    figure = draw(summary([row(0), row(2)]), FigureEntry(), {})
    np.testing.assert_array_equal(curves(figure)["Q-Anchored (d)"].get_ydata(), [0, np.nan, -4])


def test_single_samples_have_no_band_and_a_lone_band_is_a_stroke():
    figure = draw(summary([row(0), row(1), single(2), row(3), single(4)]), FigureEntry(), {}, ["q_anchored"])
    band, strokes = bands(figure)
    assert {x for path in band.get_paths() for x in path.vertices[:, 0]} <= {0, 1, 3}
    np.testing.assert_array_equal(strokes.get_segments(), [[[3, -9], [3, -3]]])


def test_a_data_set_without_flips_keeps_its_legend_entry_and_is_noted():
    rows = [row(layer, dataset="popqa") for layer in range(3)]
    rows += [empty(layer, dataset="nq") for layer in range(3)]
    rows += [row(layer, dataset=dataset, anchor="a_anchored") for layer in range(3) for dataset in ("popqa", "nq")]
    figure = draw(summary(rows), FigureEntry(), LABELS)
    assert "Q-Anchored (NQ)" in legend_texts(figure)
    assert notes(figure) == "no Q-Anchored samples: NQ"


def test_a_data_set_that_one_model_lacks_is_noted_there():
    rows = [row(model="a", anchor=anchor, dataset=dataset) for anchor in ANCHORS for dataset in ("x", "y")]
    rows += [row(model="b", anchor=anchor, dataset="x") for anchor in ANCHORS]
    figure = draw(summary(rows), FigureEntry(), {})
    assert notes(figure, 0) == ""
    assert notes(figure, 1) == "no Q-Anchored samples: y\nno A-Anchored samples: y"


def test_only_the_asked_for_anchors_are_drawn_in_their_usual_colours():
    figure = draw(paper({"m": 5}, ["x", "y"]), FigureEntry(), {}, ["a_anchored"])
    assert legend_texts(figure) == ["A-Anchored (x)", "A-Anchored (y)"]
    assert [to_hex(line.get_color()) for line in figure.legends[0].get_lines()] == [
        to_hex("tab:orange"),
        to_hex("tab:red"),
    ]


def test_labels_decide_the_order_and_slugs_without_label_follow_as_they_appear():
    labels = {"dataset": {"y": "Why", "absent": "Absent", "x": "Ex"}}
    figure = draw(paper({"m": 3}, ["w", "x", "y"]), FigureEntry(), labels, ["q_anchored"])
    assert legend_texts(figure) == ["Q-Anchored (Why)", "Q-Anchored (Ex)", "Q-Anchored (w)"]
    assert figure.axes[0].get_title() == "m"


def test_a_data_set_keeps_its_colour_when_others_are_left_out():
    rows = select(paper(PAPER, list(LABELS["dataset"])), FigureEntry(), datasets=["nq"])
    figure = draw(rows, FigureEntry(), LABELS)
    assert [to_hex(line.get_color()) for line in figure.legends[0].get_lines()] == [
        to_hex("tab:pink"),
        to_hex("tab:gray"),
    ]


def test_one_model_makes_one_panel():
    figure = draw(paper({"qwen3-8b": 36}, ["popqa"]), FigureEntry(), LABELS)
    assert [panel.get_title() for panel in figure.axes] == ["Qwen3-8B"]


def test_twelve_models_wrap_to_rows_of_four_that_share_the_y_axis():
    models = {f"a-model-with-a-long-name-{number}": 20 + number for number in range(12)}
    figure = draw(paper(models, ["x"]), FigureEntry(), {})
    figure.draw_without_rendering()
    assert [panel.get_title() for panel in figure.axes] == list(models)
    assert places(figure) == [(number // 4, number % 4) for number in range(12)]
    assert {panel.get_ylim() for panel in figure.axes} == {(-100, 20)}
    for panel in figure.axes:
        assert panel.title.get_window_extent().width <= panel.bbox.width + 1


def test_five_models_make_rows_of_three_and_two():
    figure = draw(paper(dict.fromkeys("abcde", 4), ["x"]), FigureEntry(), {})
    assert places(figure) == [
        (0, 0),
        (0, 1),
        (0, 2),
        (1, 0),
        (1, 1),
    ]


def test_a_single_layer_is_drawn():
    figure = draw(summary([row(0)]), FigureEntry(), {})
    assert list(figure.axes[0].get_xticks()) == [0]
    assert curves(figure)["Q-Anchored (d)"].get_markevery() == [0]


@pytest.mark.parametrize("number", [5, 6, 7, 11])
def test_a_longer_legend_keeps_the_two_anchors_of_a_data_set_in_one_column(number):
    figure = draw(paper({"m": 4}, [f"set {i}" for i in range(number)]), FigureEntry(), {})
    figure.draw_without_rendering()
    texts = figure.legends[0].get_texts()[: 2 * number]
    assert [text.get_text() for text in texts] == [f"{a}-Anchored (set {i})" for i in range(number) for a in "QA"]
    left = [text.get_window_extent().x0 for text in texts]
    assert left[0::2] == pytest.approx(left[1::2], abs=1)


def test_the_legend_takes_fewer_columns_where_the_figure_is_narrow():
    figure = draw(paper({"m": 4}, list(LABELS["dataset"])), FigureEntry(width=3.4), LABELS)
    figure.draw_without_rendering()
    assert figure.legends[0].get_window_extent().width <= figure.bbox.width
    assert legend_texts(figure) == [text for text, _, _ in LEGEND]


def test_redundant_gives_each_data_set_its_marker():
    figure = draw_main_figure(FigureEntry(redundant=True))
    markers = [line.get_marker() for line in figure.legends[0].get_lines()]
    assert markers[0::2] == markers[1::2]
    assert len(set(markers)) == 4
    assert [line.get_marker() for line in curves(figure).values()] == markers


def test_show_n_gives_the_range_of_n_over_panels_and_layers():
    rows = [row(0, n=5), row(1, n=8), row(0, model="other", n=40), row(0, anchor="a_anchored", n=7)]
    figure = draw(summary(rows), FigureEntry(show_n=True), {})
    assert legend_texts(figure) == ["Q-Anchored (d), n = 5–40", "A-Anchored (d), n = 7"]


def test_data_beyond_the_limits_extend_the_axis_for_all_panels():
    rows = [row(0, model="a", mean=-104.0), row(0, model="b", ci_high=41.0)]
    figure = draw(summary(rows), FigureEntry(), {})
    for panel in figure.axes:
        assert panel.get_ylim() == (-110, 50)
        assert list(panel.get_yticks()) == list(range(-100, 41, 20))


def test_without_lower_limit_the_axis_reaches_down_to_the_data():
    figure = draw(summary([row(0), row(1, mean=-33.0, ci_low=-36.0)]), FigureEntry(y_min=None), {})
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
        draw(summary([row()]), FigureEntry(palette="tab11"), {})


def test_two_rows_for_one_point_are_refused():
    with pytest.raises(DeltapError, match="two rows for model m, dataset d, anchor q_anchored, layer 0"):
        draw(summary([row(), row(site="mlp")]), FigureEntry(), {})


def test_samples_without_a_mean_are_refused():
    with pytest.raises(DeltapError, match="no mean for model m, dataset d, anchor q_anchored, layer 7"):
        draw(summary([row(), row(7, mean=float("nan"))]), FigureEntry(), {})


def test_a_table_without_rows_is_refused():
    with pytest.raises(DeltapError, match="no rows"):
        draw(summary([]), FigureEntry(), {})


def test_drawing_leaves_matplotlib_as_it_was():
    before = dict(matplotlib.rcParams)
    draw_main_figure(FigureEntry())
    assert dict(matplotlib.rcParams) == before
    assert not plt.get_fignums()


def test_selection_keeps_one_site_position_grouping_and_extractor():
    rows = [row(site=site, grouping=grouping) for site in ("attn", "mlp") for grouping in ("per_layer", "reference")]
    chosen = select(summary(rows), FigureEntry(site="mlp", grouping="reference", position=None)).to_pylist()
    assert [(found["site"], found["grouping"]) for found in chosen] == [("mlp", "reference")]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"models": ["qwen3-8B"]}, "model 'qwen3-8B'; did you mean 'qwen3-8b'"),
        ({"datasets": ["trivia"]}, "dataset 'trivia'; did you mean 'triviaqa'"),
        ({"entry": FigureEntry(extractor="rules")}, r"extractor 'rules' \(valid: auto\)"),
        ({"entry": FigureEntry(site="resid")}, r"site 'resid' \(valid: attn\)"),
    ],
)
def test_selecting_what_the_table_lacks_is_refused_by_name(arguments, message):
    with pytest.raises(DeltapError, match=message):
        select(paper(PAPER, list(LABELS["dataset"])), **({"entry": FigureEntry()} | arguments))


def test_several_extractors_need_a_choice():
    table = summary([row(extractor="auto"), row(extractor="rules")])
    with pytest.raises(DeltapError, match=r"several values of extractor \(auto, rules\)"):
        select(table, FigureEntry())
    assert select(table, FigureEntry(extractor="rules")).num_rows == 1


def test_tables_are_read_together_with_their_labels(tmp_path):
    for name, layers in PAPER.items():
        labels = {"model": [[name, LABELS["model"][name]]], "dataset": list(LABELS["dataset"].items())}
        write_table(tmp_path / name, paper({name: layers}, ["popqa"]), SUMMARY, {"labels": labels})
    paths = [tmp_path / name for name in PAPER]
    assert read_summaries(paths, BootstrapSettings()).num_rows == 2 * (36 + 64)
    found = read_labels(paths)
    assert found == LABELS
    assert list(found["model"]) == list(PAPER)


def test_a_summary_of_plain_columns_is_read_too(tmp_path):
    plain = pa.Table.from_pylist([row()])
    pq.write_table(plain, tmp_path / "plain.parquet")
    assert read_summaries([tmp_path / "plain.parquet"], BootstrapSettings()).to_pylist() == [row()]
    assert read_labels([tmp_path / "plain.parquet"]) == {"model": {}, "dataset": {}}


def test_missing_and_wrong_columns_are_refused_by_file_and_name(tmp_path):
    table = paper({"m": 3}, ["x"])
    pq.write_table(table.drop_columns(["n", "ci_low"]), tmp_path / "short.parquet")
    with pytest.raises(DeltapError, match=r"short.parquet: missing columns n, ci_low"):
        read_summaries([tmp_path / "short.parquet"], BootstrapSettings())
    wrong = table.set_column(table.schema.get_field_index("mean"), "mean", pa.array(["low"] * len(table)))
    pq.write_table(wrong, tmp_path / "wrong.parquet")
    with pytest.raises(DeltapError, match=r"wrong.parquet: mean is string"):
        read_summaries([tmp_path / "wrong.parquet"], BootstrapSettings())
    with pytest.raises(DeltapError, match="no such table"):
        read_summaries([tmp_path / "absent.parquet"], BootstrapSettings())


def test_a_table_of_samples_is_summarised_first(tmp_path):
    pytest.importorskip("deltap.delta_p")
    shared = {
        "model": "m",
        "dataset": "d",
        "extractor": "auto",
        "grouping": "per_layer",
        "site": "attn",
        "position": "exact_answer_last",
        "label": "truthful",
        "predicted": "truthful",
        "p_clean": 0.9,
    }
    samples = [
        {**shared, "anchor": anchor, "layer": layer, "question_id": name, "p_knockout": p, "delta_p": 100 * p - 90}
        for layer in (0, 1)
        for anchor, name, p in [("q_anchored", "1", 0.3), ("q_anchored", "2", 0.1), ("a_anchored", "3", 0.8)]
    ]
    write_table(tmp_path / "delta_p.parquet", samples, DELTA_P, {})
    rows = select(read_summaries([tmp_path / "delta_p.parquet"], BootstrapSettings(draws=50)), FigureEntry())
    drawn = curves(draw(rows, FigureEntry(), {}))
    np.testing.assert_allclose(drawn["Q-Anchored (d)"].get_ydata(), [-70, -70], rtol=1e-6)
    np.testing.assert_allclose(drawn["A-Anchored (d)"].get_ydata(), [-10, -10], rtol=1e-6)


@pytest.mark.parametrize("kind", ["png", "pdf", "svg"])
def test_the_same_figure_gives_the_same_bytes_without_a_date(tmp_path, kind):
    for name in ("first", "second"):
        save(draw_main_figure(FigureEntry()), tmp_path / f"{name}.{kind}", "made by a test")
    content = (tmp_path / f"first.{kind}").read_bytes()
    assert content == (tmp_path / f"second.{kind}").read_bytes()
    assert b"made by a test" in content
    assert b"CreationDate" not in content
    assert b"dc:date" not in content


def test_png_has_300_dots_per_inch_at_the_configured_size(tmp_path):
    save(main_figure(), tmp_path / "figure.png", "")
    with Image.open(tmp_path / "figure.png") as image:
        assert image.size == (2100, 960)
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
    with pytest.raises(DeltapError, match="png, pdf or svg, not 'jpg'"):
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
    command += ["--settings", json.dumps({"site": None, "redundant": True}), "--models", "qwen3-8b"]
    module.main(module.arguments().parse_args(command))
    content = (tmp_path / "a.svg").read_text("utf-8")
    assert "Qwen3-8B" in content
    assert "Qwen3-32B" not in content
    with Image.open(tmp_path / "b" / "a.png") as image:
        made_by = json.loads(image.info["Description"])
    assert made_by["stage"] == "plot_delta_p"
    assert made_by["settings"]["redundant"]


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
