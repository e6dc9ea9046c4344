"""The figure of ΔP against layer for a browser: one HTML file with everything in it, which opens offline."""

import json
from html import escape
from typing import Any

import altair as alt
import numpy as np
import pandas as pd
from matplotlib.colors import to_hex

from deltap.figures.canvas import ordered
from deltap.figures.delta_p import BESIDE, anchor_curves, beside_note, curve_rows
from deltap.figures.over_layers import Curve
from deltap.figures.sources import Labels
from deltap.figures.style import BAND_ALPHA, THIN, delta_p_limits, layer_ticks
from deltap.settings import ANCHORS, DeltaPFigure

# Pixels of a panel.
WIDTH, HEIGHT = 460, 340
DASHED = [6, 4]
FADED = 0.06


def _dash(curve: Curve) -> list[float]:
    """Return the lengths of dashes and gaps, as Vega wants them, of a curve's line style."""
    if curve.dash == "--":
        return list(DASHED)
    return [1, 0] if isinstance(curve.dash, str) else list(curve.dash[1])


def page(
    summary: pd.DataFrame, entry: DeltaPFigure, labels: Labels, description: str, notice: str | None = None
) -> str:
    """Return the HTML of the figure of a summary's rows (see `deltap.figures.delta_p.draw`).

    The mouse over a point shows layer, mean, interval and n. A click on the legend isolates a curve, with the shift key
    several; a double click brings all back.
    """
    html = _chart(summary, entry, labels, notice).to_html(
        inline=True,
        embed_options={"renderer": "svg", "actions": {"export": True, "source": False, "compiled": False,
                                                      "editor": False}},
        json_kwds={"cls": _InScript},
    )  # fmt: skip
    head = f'<title>ΔP against layer</title>\n  <meta name="description" content="{escape(description)}">'
    return html.replace("<head>", f"<head>\n  {head}", 1)


class _InScript(json.JSONEncoder):
    """JSON that cannot end the script element that it stands in, whatever a table from elsewhere calls its models."""

    def encode(self, o: Any) -> str:
        return super().encode(o).replace("<", "\\u003c")


def _chart(summary: pd.DataFrame, entry: DeltaPFigure, labels: Labels, notice: str | None) -> alt.HConcatChart:
    anchors = entry.anchors or ANCHORS
    rows = curve_rows(summary[summary["anchor"].isin(anchors)], entry)
    curves = anchor_curves(rows, entry, labels["dataset"], anchors)
    models = ordered(rows["model"], labels["model"], entry.models)
    low, high = delta_p_limits(rows[["mean", "low", "high"]].to_numpy(float), entry.y_min, entry.y_max)
    names = {curve.name: curve.label for curve in curves}
    beside, note = rows["curve"].str.endswith(BESIDE), beside_note(entry)
    layers = rows.groupby("model")["layer"].transform("max")
    data = pd.DataFrame(
        {
            "model": rows["model"],
            "series": rows["curve"].str.removesuffix(BESIDE).map(names),
            "beside": beside,
            "layer": rows["layer"],
            "depth": rows["layer"] / np.maximum(layers, 1),
            "n": rows["n"].astype(int),
            **{name: rows[name].round(4) for name in ("mean", "low", "high")},
        }
    )
    # Legend and curves share colour and dash, so that Vega draws one legend for both.
    series = list(names.values())
    colour = alt.Color(
        "series:N",
        title=None,
        scale=alt.Scale(domain=series, range=[to_hex(curve.colour) for curve in curves]),
        legend=alt.Legend(orient="bottom", columns=min(4, entry.columns), symbolType="stroke", symbolSize=600,
                          symbolStrokeWidth=2.5, symbolOpacity=1, labelLimit=400, labelFontSize=12),
    )  # fmt: skip
    dash = alt.StrokeDash(
        "series:N",
        title=None,
        scale=alt.Scale(domain=series, range=[_dash(curve) for curve in curves]),
    )
    isolated = alt.selection_point(name="isolated", fields=["series"], bind="legend")
    panels = []
    for index, (model, label) in enumerate(models.items()):
        found = data[data["model"] == model].drop(columns="model")
        ticks = layer_ticks(int(found["layer"].max()) + 1) if entry.x == "layer" else [0, 0.25, 0.5, 0.75, 1]
        x = alt.X(
            f"{entry.x}:Q",
            title=entry.x.capitalize(),
            axis=alt.Axis(grid=False, values=ticks),
            scale=alt.Scale(nice=False, padding=6),
        )
        y_axis = alt.Axis(values=list(range(int(np.ceil(low / 20)) * 20, int(high) + 1, 20)), gridColor="#ececec")
        scale = alt.Scale(domain=[low, high], nice=False)
        y = alt.Y("mean:Q", title="ΔP" if index == 0 else None, axis=y_axis, scale=scale)
        base = alt.Chart(found[~found["beside"]].drop(columns="beside"))
        thin = alt.Chart(found[found["beside"]].drop(columns="beside"))
        shown = alt.when(isolated)
        band = base.mark_area(clip=True).encode(
            x, alt.Y("low:Q", scale=scale), alt.Y2("high:Q"), colour,
            opacity=shown.then(alt.value(BAND_ALPHA)).otherwise(alt.value(0.0)),
        )  # fmt: skip
        line = base.mark_line(clip=True, strokeWidth=1.8).encode(
            x, y, colour, dash, opacity=shown.then(alt.value(1.0)).otherwise(alt.value(FADED))
        )
        if index == 0:  # a selection of the legend belongs to a layer that the legend describes
            line = line.add_params(isolated)
        aside = [thin.mark_line(clip=True, strokeWidth=1.8 * THIN).encode(
            x, y, colour, dash, opacity=shown.then(alt.value(1.0)).otherwise(alt.value(FADED))
        )] if note else []  # fmt: skip
        # Large points that cannot be seen catch the mouse.
        points = base.mark_point(filled=True, size=90, clip=True).encode(
            x, y, colour, opacity=alt.value(0.0),
            tooltip=[
                alt.Tooltip("series:N", title="curve"),
                alt.Tooltip("layer:Q"),
                alt.Tooltip("mean:Q", title="mean ΔP", format=".2f"),
                alt.Tooltip("low:Q", title="interval from", format=".2f"),
                alt.Tooltip("high:Q", title="to", format=".2f"),
                alt.Tooltip("n:Q", title="n"),
            ],
        )  # fmt: skip
        zero = alt.Chart(alt.Data(values=[{"zero": 0}])).mark_rule(color="#999").encode(alt.Y("zero:Q"))
        panels.append(
            alt.layer(zero, band, *aside, line, points, title=alt.TitleParams(label, fontWeight="normal")).properties(
                width=WIDTH, height=HEIGHT
            )
        )
    title = alt.TitleParams(
        notice or "ΔP against layer",
        subtitle="Point at a curve to read it. Click in the legend to see one alone, with Shift several; "
        "a double click brings all back." + (f" {note}." if note else ""),
        color="#a01010" if notice else "black",
        subtitleColor="#666",
        anchor="start",
        offset=16,
    )
    return (
        alt.hconcat(*panels, title=title, spacing=36)
        .resolve_scale(color="shared", strokeDash="shared")
        .configure_view(stroke=None)
    )
