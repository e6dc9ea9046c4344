"""How figures look: colours, lines, markers, ticks and fonts."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import count
from typing import Literal

import matplotlib
import matplotlib.style
import numpy as np
from matplotlib.colors import ListedColormap, to_rgb

from deltap.errors import DeltapError
from deltap.settings import ANCHORS

Colour = tuple[float, float, float]
Dash = Literal["-", "--"] | tuple[float, tuple[float, ...]]

ANCHOR_LABELS = {"q_anchored": "Q-Anchored", "a_anchored": "A-Anchored"}
# Controls (column ``control`` of CONTROLS) in the words of the field. Each has the palette's colour of its place, the
# method and its own repetition apart, which are black; the last is no control, but what others are of.
CONTROL_LABELS = {
    "random_tokens": "random tokens cut",
    "permuted_labels": "permuted labels",
    "noise": "noise",
    "cross_fitted": "cross-fitted",
    "leave_layers_out": "groups of farther layers",
    "random_mass": "random tokens cut, equal mass",
    "class": "equal class mix",
    "stable_samples": "stable samples",
    "answer_queries": "cut for the answer alone",
    "calibrated": "calibrated probes",
    "exact_question": "exact question cut",
    "refits": "probes trained anew",
    "same_groups": "same groups",
}
MARKERS = "osD^vPX*"
BAND_ALPHA = 0.18
GREY = "0.45"
NOTICE = "#a01010"
FONT_SIZE = 8.0
LINE_WIDTH = 1.2
THIN = 0.45  # width of a curve that rests on few samples, as a share
# matplotlib's units: line widths on and off. Q-Anchored stays closed or nearly so, A-Anchored stays broken.
DASHES: dict[str, tuple[Dash, ...]] = {
    "q_anchored": ("-", (0, (8, 2)), (0, (8, 1.5, 1.5, 1.5)), (0, (8, 1.4, 1.4, 1.4, 1.4, 1.4))),
    "a_anchored": ((0, (3, 2)), (0, (1.2, 1.5)), (0, (3.2, 1.6, 1.2, 1.6)), (0, (3.2, 1.5, 1.2, 1.5, 1.2, 1.5))),
}

# For a font of 8 points, legible at the width of a page's text. Text stays text in vector files; PDF embeds its font.
_POINTS = {
    "axes.titlesize": 9,
    "axes.labelsize": 9,
    "axes.linewidth": 0.7,
    "grid.linewidth": 0.6,
    "xtick.major.width": 0.7,
    "ytick.major.width": 0.7,
    "xtick.major.size": 3,
    "ytick.major.size": 3,
    "lines.linewidth": LINE_WIDTH,
    "lines.markersize": 4,
}
_RC = {
    "font.family": "DejaVu Sans",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "axes.grid": True,
    "axes.grid.axis": "y",
    "grid.color": "0.92",
    "legend.frameon": False,
    "savefig.dpi": 300,
    "pdf.fonttype": 42,
    "svg.fonttype": "none",
    "svg.hashsalt": "deltap",
    "text.parse_math": False,  # a label is text, dollars included
}


@contextmanager
def style(font_size: float = FONT_SIZE) -> Iterator[None]:
    """Use the figures' settings of matplotlib, whatever the user's own are; they are restored afterwards.

    ``font_size`` is in points; titles, lines and ticks grow with it.
    """
    scaled = {name: points * font_size / FONT_SIZE for name, points in _POINTS.items()}
    with matplotlib.style.context(["default", {"font.size": font_size, **scaled, **_RC}]):
        yield


def colours(palette: str | Sequence[str], datasets: int) -> list[dict[str, Colour]]:
    """Return, for each of ``datasets`` data sets, its colour (red, green, blue in 0 … 1) per anchor.

    Data set i has colour 2i of the palette for Q-Anchored and 2i + 1 for A-Anchored. A palette with too few
    colours is replaced by ``tab20`` (pairs of a dark and a light tone) or, for more than ten data sets, by as
    many hues as are needed (``husl``).

    Raises DeltapError when there is no such palette or colour.
    """
    found = distinct_colours(palette, len(ANCHORS) * datasets)
    return [dict(zip(ANCHORS, found[start:], strict=False)) for start in range(0, len(found), len(ANCHORS))]


def distinct_colours(palette: str | Sequence[str], number: int) -> list[Colour]:
    """Return the first ``number`` colours of a palette, or of the larger one that takes its place (see `colours`)."""
    for name in (palette, "tab20", "husl"):
        found = _colours(name, number)
        if len(set(found)) == number:
            break
    return found


def _colours(palette: str | Sequence[str], number: int) -> list[Colour]:
    """Return ``number`` colours, fewer where the palette has no more."""
    try:
        if not isinstance(palette, str):
            return [to_rgb(colour) for colour in palette][:number]
        if palette in matplotlib.color_sequences:
            return [to_rgb(colour) for colour in matplotlib.color_sequences[palette]][:number]
        if palette in matplotlib.colormaps:
            colormap = matplotlib.colormaps[palette]
            ends = np.linspace(0, 1, number + 2)[1:-1]  # without the ends, which are often near black or white
            listed = isinstance(colormap, ListedColormap) and colormap.N < 20
            return [to_rgb(colour) for colour in (colormap(range(colormap.N))[:number] if listed else colormap(ends))]
        import seaborn as sns  # a second that most figures need not wait for

        return [to_rgb(colour) for colour in sns.color_palette(palette, number)]
    except ValueError as error:
        raise DeltapError(
            f"palette: {palette!r} is unknown to matplotlib and seaborn; use for example 'tab10' ({error})"
        ) from None


def layer_ticks(layers: int) -> list[int]:
    """Return the ticks of layers 0 … ``layers`` - 1.

    Their step is the smallest of 1, 2, 5, 10, 20, 50, … that gives at most four intervals.
    """
    step = next(factor * 10**power for power in count() for factor in (1, 2, 5) if layers - 1 <= 4 * factor * 10**power)
    return list(range(0, layers, step))


def delta_p_limits(values: np.ndarray, y_min: float | None, y_max: float | None) -> tuple[float, float]:
    """Return the ends of the ΔP axis: ``y_min`` and ``y_max``, or a ten further out where values lie there.

    ``values`` are percentage points, NaN allowed; without ``y_min`` or ``y_max`` the data alone decide.
    """
    finite = values[np.isfinite(values)]
    smallest, largest = finite.min(initial=0), finite.max(initial=0)
    low = min(10 * np.floor(smallest / 10), smallest)  # a tenth of a tiny number may be rounded to zero
    high = max(10 * np.ceil(largest / 10), largest)
    return float(min(low, low if y_min is None else y_min)), float(max(high, high if y_max is None else y_max))
