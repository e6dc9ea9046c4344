"""What the method gives beside what its controls give, against layer: one panel per model and data set."""

from collections.abc import Sequence
from typing import get_args

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from deltap.errors import DeltapError, nearest
from deltap.figures.canvas import ordered
from deltap.figures.delta_p import LINES
from deltap.figures.over_layers import Axis, Curve, draw_over_layers
from deltap.figures.sources import Labels
from deltap.figures.style import ANCHOR_LABELS, BAND_ALPHA, CONTROL_LABELS, DASHES, MARKERS, Dash, distinct_colours
from deltap.settings import ANCHORS, SAME_GROUPS, Anchor, ControlName, ControlsFigure

METHOD: ControlName = "exact_question"
WINDOW = "window_"
BLACK = (0.0, 0.0, 0.0)
# Times a line's width, and opacity of the band.
METHOD_WIDTH, CONTROL_WIDTH, CONTROL_BAND = 1.6, 0.8, 0.5 * BAND_ALPHA
REWEIGHTED = ("reweighted",)
# The curves of a figure that names none, as far as they are there.
USUAL: dict[str, tuple[ControlName, ...]] = {
    "flip_rate": (METHOD, "random_tokens", "permuted_labels", "noise", "cross_fitted"),
    "gap": (METHOD, "random_tokens", "permuted_labels", "noise", "cross_fitted", "leave_layers_out", "class"),
    "delta_p": (METHOD, "random_tokens", "random_mass", "answer_queries", "noise"),
    "delta_p of a group": (METHOD, "random_tokens same_groups", "noise same_groups", "cross_fitted"),
    "flip_rate_difference": ("random_tokens", "permuted_labels", "noise"),
    "gap_difference": ("random_tokens cross_fitted", "random_tokens leave_layers_out", "random_tokens class"),
    "delta_p_difference": ("random_tokens", "random_mass", "noise"),
    "delta_p_difference of a group": ("random_tokens", "random_mass", "noise"),
}


def draw(table: pd.DataFrame, entry: ControlsFigure, labels: Labels, notice: str | None = None) -> Figure:
    """Return the figure of CONTROLS rows of one statistic.

    The method is black and thick. A control has a colour of its own in every figure; a second curve of the same colour
    is dash-dotted. Rows without a layer are means over layers, and not drawn.

    Raises DeltapError where the table has none of the rows, or a control that the figure names is not among them.
    """
    rows = _chosen_rows(table[table["layer"].notna()], entry)
    rows = rows.astype(dict.fromkeys(["model", "dataset"], str)).astype({"layer": int})
    rows = rows.rename(columns={"value": "mean", "ci_low": "low", "ci_high": "high"})
    rows["panel"] = rows["model"] + ", dataset " + rows["dataset"]
    rows["n"] = rows["n"].fillna(1).where(rows["mean"].notna(), 0)
    there = set(rows["panel"])
    titles = {
        panel: f"{model_label}\n{dataset_label}"
        for model, model_label in ordered(rows["model"], labels["model"], entry.models).items()
        for dataset, dataset_label in ordered(rows["dataset"], labels["dataset"], entry.datasets).items()
        for panel in [f"{model}, dataset {dataset}"]
        if panel in there
    }
    windows = entry.controls == ("windows",)
    marked = _read_at(rows) if windows else {}
    return draw_over_layers(
        rows,
        _curves(rows, entry),
        titles,
        _axis(rows, entry, windows, bool(marked)),
        entry,
        2 if entry.group == "both" else 1,
        notice=notice,
        marked=marked,
    )


def _chosen_rows(rows: pd.DataFrame, entry: ControlsFigure) -> pd.DataFrame:
    """Return the rows of the figure's curves, curve by curve in the legend's order, with the column ``curve``."""
    rows = rows.astype(dict.fromkeys(["control", "grouping", "group"], object))
    rows = rows.astype(dict.fromkeys(["grouping", "group"], object)).fillna({"grouping": "", "group": ""})
    windows = entry.controls == ("windows",)
    of_all = entry.statistic.startswith("delta_p") and entry.group is None
    grouping = "" if of_all and not windows else _grouping(rows, entry)
    rows = rows[rows["grouping"] == grouping]
    groups = ANCHORS if entry.group == "both" else (entry.group or "",)
    found = sorted({*rows["control"]}, key=lambda name: (len(name), name))
    if windows:
        names = [name for name in found if name.startswith(WINDOW)]
    else:
        names = list(entry.controls or USUAL[entry.statistic + (" of a group" if entry.group else "")])
    parts = {
        (name, group): rows[(rows["control"] == name) & (rows["group"] == group)].assign(curve=_key(name, group))
        for name in names
        for group in (REWEIGHTED if name.split(" ")[-1] == "class" else groups)
    }
    missing = [name for (name, _), part in parts.items() if part.empty]
    if not parts or len(missing) == len(parts) or (entry.controls and missing):
        valid = [name for name in get_args(ControlName) if name in found and name != "class"]
        what = missing[0] if missing else "windows"
        raise DeltapError(
            f"the table has no {what!r} with statistic {entry.statistic!r} for this figure's grouping and group"
            f"{nearest(what, valid)}; the run's 'controls' say what is computed"
        )
    return pd.concat(parts.values(), ignore_index=True)


def _grouping(rows: pd.DataFrame, entry: ControlsFigure) -> str:
    """Return the figure's grouping, or the only one there is."""
    there = sorted({*rows["grouping"]} - {""})
    if entry.grouping is None and len(there) > 1:
        raise DeltapError(
            f"the table has several values of grouping ({', '.join(there)}): choose one with 'grouping' in the "
            "figure's entry"
        )
    return entry.grouping or (there[0] if there else "")


def _key(control: str, group: str) -> str:
    return f"control {control}" + (f", group {group}" if group in ANCHORS else "")


def _curves(rows: pd.DataFrame, entry: ControlsFigure) -> list[Curve]:
    """Return the curves in the legend's order."""
    families = [name for name in CONTROL_LABELS if name not in (METHOD, "refits", SAME_GROUPS)]
    controls = list(dict.fromkeys(rows["control"]))
    windows = [name for name in controls if name.startswith(WINDOW)]
    palette = dict(zip(families, distinct_colours(entry.palette, len(families)), strict=True))
    palette |= dict(zip(windows, distinct_colours(entry.palette, len(windows)), strict=True))
    curves = []
    for control, group in rows[["control", "group"]].drop_duplicates().itertuples(index=False):
        family, place = _family(control), controls.index(control)
        label = _label(control)
        if entry.group == "both":
            label = f"{ANCHOR_LABELS[group]} ({label})"
        curves.append(
            Curve(
                _key(control, group),
                label[0].upper() + label[1:],
                label,
                palette.get(family, BLACK),
                _dash(group, place, entry, second=family in map(_family, controls[:place])),
                MARKERS[place % len(MARKERS)] if entry.redundant == "markers" else None,
                place,
                "no value",
                *_strength(control, entry),
            )
        )
    return curves


def _strength(control: str, entry: ControlsFigure) -> tuple[float, float]:
    """Return how wide a curve is and how dark its band: controls stay behind the method, where it is drawn."""
    if control == METHOD:
        return METHOD_WIDTH, BAND_ALPHA
    behind = entry.controls != ("windows",) and not entry.statistic.endswith("_difference")
    return (CONTROL_WIDTH, CONTROL_BAND) if behind else (1, BAND_ALPHA)


def _label(control: str) -> str:
    """Return what a control is in the words of the field."""
    if control.startswith(WINDOW):
        width = control.removeprefix(WINDOW)
        return "single layer" if width == "1" else f"window of {width} layers"
    parts = [CONTROL_LABELS[part] for part in _parts(control)]
    return ", ".join(parts)


def _parts(control: str) -> list[str]:
    """Return what was cut or permuted, and what was estimated then, as far as a control is not as the method."""
    return control.replace("permuted_labels_", "permuted_labels ").split(" ")


def _family(control: str) -> str:
    """Return whose colour a control has: that of its estimator, else of its cut; the method's own repetition is its."""
    if control == "refits":
        return METHOD
    parts = _parts(control)
    return parts[0] if parts[-1] == SAME_GROUPS else parts[-1]


def _dash(group: str, place: int, entry: ControlsFigure, second: bool) -> Dash:
    """Return the dashes of a curve, which is perhaps the ``second`` one of its colour."""
    line: Anchor = "a_anchored" if entry.group == "both" and group == "a_anchored" else "q_anchored"
    if entry.redundant == "dashes":
        return DASHES[line][place % len(DASHES[line])]
    return DASHES[line][2] if second else LINES[line]


def _read_at(rows: pd.DataFrame) -> dict[str, int]:
    """Return the reference layer of each panel; nothing where each window is read at its own end."""
    layers = {str(panel): {*part["at"].dropna()} for panel, part in rows.groupby("panel", sort=False)}
    fixed = all(len(found) == 1 for found in layers.values())
    return {panel: int(*found) for panel, found in layers.items()} if fixed else {}


def _axis(rows: pd.DataFrame, entry: ControlsFigure, windows: bool, at_reference: bool) -> Axis:
    values = rows[["mean", "low", "high"]].to_numpy(float)
    ends = np.nanmin(values, initial=0), np.nanmax(values, initial=1)
    ticks: Sequence[float] = MaxNLocator(8, steps=[1, 2, 5, 10]).tick_values(*ends)
    of_whom = {None: "all samples", "both": ""}.get(entry.group, ANCHOR_LABELS.get(str(entry.group), ""))
    label = {"flip_rate": "Samples that flip (%)", "gap": "Gap of ΔP, Q − A", "delta_p": "ΔP"}[
        entry.statistic.removesuffix("_difference")
    ]
    if windows:
        label += " at k*" if at_reference else " at the window's end"
    if label.startswith("ΔP") and of_whom:
        label += f" ({of_whom})"
    if entry.statistic.endswith("_difference"):
        label += ",\nmethod − control"
    return Axis(label, (ticks[0], ticks[-1]), ticks, zero=0, layers="Window's first layer" if windows else "Layer")
