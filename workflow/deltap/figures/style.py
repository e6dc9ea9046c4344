"""How curves look: colours, lines, markers, ticks and fonts."""

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count

import matplotlib.style
import numpy as np
import seaborn as sns

from deltap.errors import DeltapError
from deltap.settings import ANCHORS

Colour = tuple[float, float, float]

ANCHOR_LABELS = {"q_anchored": "Q-Anchored", "a_anchored": "A-Anchored"}
MARKERS = "osD^vPX*"
BAND_ALPHA = 0.18
GREY = "0.45"

# Legible at 7 inches, the width of a page's text. Text stays text in vector files; PDF embeds its font.
_RC = {
    "font.family": "DejaVu Sans",
    "font.size": 8,
    "axes.titlesize": 9,
    "axes.labelsize": 9,
    "axes.linewidth": 0.7,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "axes.grid": True,
    "axes.grid.axis": "y",
    "grid.color": "0.92",
    "grid.linewidth": 0.6,
    "xtick.major.width": 0.7,
    "ytick.major.width": 0.7,
    "xtick.major.size": 3,
    "ytick.major.size": 3,
    "lines.linewidth": 1.2,
    "lines.markersize": 4,
    "legend.frameon": False,
    "savefig.dpi": 300,
    "pdf.fonttype": 42,
    "svg.fonttype": "none",
    "svg.hashsalt": "deltap",
}


@contextmanager
def style() -> Iterator[None]:
    """Use the figures' settings of matplotlib, whatever the user's own are; they are restored afterwards."""
    with matplotlib.style.context(["default", _RC]):
        yield


def colours(palette: str, datasets: int) -> list[dict[str, Colour]]:
    """Return, for each of ``datasets`` data sets, its colour (red, green, blue in 0 … 1) per anchor.

    Data set i has colour 2i of the palette for Q-Anchored and 2i + 1 for A-Anchored. A palette with too few
    colours is replaced by ``tab20`` (pairs of a dark and a light tone) or, for more than ten data sets, by as
    many hues as are needed (``husl``).

    Raises DeltapError when there is no such palette.
    """
    number = len(ANCHORS) * datasets
    for name in (palette, "tab20", "husl"):
        try:
            found = [tuple(colour) for colour in sns.color_palette(name, number)]
        except ValueError:
            raise DeltapError(
                f"palette: {name!r} is unknown to seaborn and matplotlib; use for example 'tab10'"
            ) from None
        if len(set(found)) == number:
            break
    return [dict(zip(ANCHORS, found[start:], strict=False)) for start in range(0, number, len(ANCHORS))]


def layer_ticks(layers: int) -> list[int]:
    """Return the ticks of layers 0 … ``layers`` - 1.

    Their step is the smallest of 1, 2, 5, 10, 20, 50, … that gives at most four intervals.
    """
    step = next(factor * 10**power for power in count() for factor in (1, 2, 5) if layers - 1 <= 4 * factor * 10**power)
    return list(range(0, layers, step))


def delta_p_limits(values: np.ndarray, y_min: float | None, y_max: float) -> tuple[float, float]:
    """Return the ends of the ΔP axis: ``y_min`` and ``y_max``, or a ten further out where values lie there.

    ``values`` are percentage points, NaN allowed; without ``y_min`` the data alone decide.
    """
    finite = values[np.isfinite(values)]
    smallest, largest = finite.min(initial=0), finite.max(initial=0)
    low = min(10 * np.floor(smallest / 10), smallest)  # a tenth of a tiny number may be rounded to zero
    high = max(10 * np.ceil(largest / 10), largest)
    return float(min(low, low if y_min is None else y_min)), float(max(high, y_max))
