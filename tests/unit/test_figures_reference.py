"""The main figure of a made-up table against an image in this folder.

Fonts differ between machines, so text is taken away, and the images are compared as blocks of pixels. To make new
references after a wanted change: DELTAP_WRITE_REFERENCES=1 pytest tests/unit/test_figures_reference.py; look at them.
"""

import os
from pathlib import Path

import numpy as np
import pytest
from matplotlib.text import Text
from PIL import Image

import synthetic
from deltap.figures.kinds import Content
from deltap.settings import AurocFigure, BootstrapSettings, DeltaPFigure, GroupsFigure, PlotStage, TableSource
from deltap.tables import ANCHORS, PROBES, write_table

REFERENCES = Path(__file__).parent / "reference"
BLOCK = 4  # pixels
NOTABLE = 20  # of 255
SHARE = 0.001  # of all blocks
STAGE = PlotStage(figures={}, bootstrap=BootstrapSettings(draws=200))
FIGURES = {
    "delta_p": DeltaPFigure(),
    "delta_p_markers_depth": DeltaPFigure(redundant="markers", x="depth", grouping="reference"),
    "auroc": AurocFigure(kind="auroc"),
    "groups": GroupsFigure(kind="groups"),
}


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("run")
    write_table(folder / "anchors.parquet", synthetic.anchors(60), ANCHORS, synthetic.metadata())
    write_table(folder / "probes.parquet", synthetic.probes(), PROBES, synthetic.metadata())
    return folder


def blocks(image: Image.Image) -> np.ndarray:
    """Return the mean colours of an image's blocks, shape (rows, columns, 3), 0 … 255."""
    pixels = np.asarray(image.convert("RGB"), float)
    rows, columns = (size // BLOCK for size in pixels.shape[:2])
    return pixels[: rows * BLOCK, : columns * BLOCK].reshape(rows, BLOCK, columns, BLOCK, 3).mean(axis=(1, 3))


def picture(entry, run) -> Image.Image:
    """Return a figure without its text, in 100 dots per inch."""
    figure = Content(entry, [TableSource(path=str(run))], STAGE).draw()
    # Where the panels stand depends on the width of texts.
    for index, panel in enumerate(figure.axes):
        panel.set_position((0.08 + 0.47 * index, 0.3, 0.43, 0.62))
    for text in figure.findobj(Text):
        text.set_visible(False)
    for legend in figure.legends:
        legend.set_visible(False)
    figure.set_dpi(100)
    figure.canvas.draw()
    return Image.fromarray(np.asarray(figure.canvas.buffer_rgba())).convert("RGB")


@pytest.mark.parametrize("name", FIGURES)
def test_the_figure_looks_like_its_reference(run, name):
    image = picture(FIGURES[name], run)
    path = REFERENCES / f"{name}.png"
    if os.environ.get("DELTAP_WRITE_REFERENCES"):
        path.parent.mkdir(exist_ok=True)
        image.save(path, optimize=True)
    with Image.open(path) as reference:
        wanted, found = blocks(reference), blocks(image)
    assert found.shape == wanted.shape
    difference = np.abs(found - wanted).max(axis=2)
    assert (difference > NOTABLE).mean() < SHARE, f"{(difference > NOTABLE).sum()} blocks differ from {path}"


@pytest.mark.parametrize(
    "change",
    [{"palette": "Set2"}, {"y_max": 30}, {"redundant": "dashes"}, {"anchors": ("q_anchored",)}, {"thin_below": 40}],
)
def test_a_visible_change_is_noticed(run, change):
    with Image.open(REFERENCES / "delta_p.png") as reference:
        wanted = blocks(reference)
    difference = np.abs(blocks(picture(DeltaPFigure(**change), run)) - wanted).max(axis=2)
    assert (difference > NOTABLE).mean() > 2 * SHARE
