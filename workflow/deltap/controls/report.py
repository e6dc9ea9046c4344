"""The report on the controls, to read: is the effect more than selection, chance and cutting anything would give?"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import pyarrow as pa

from deltap import markdown
from deltap.settings import ControlSettings
from deltap.statistics import holm

YES, NO, CANNOT_TELL = "yes", "no", "cannot tell"
NAMES = {
    "exact_question": "as measured",
    "permuted_labels": "permuted labels",
    "noise": "noise instead of the cut",
    "random_tokens": "random tokens cut",
    "random_mass": "as much attention cut elsewhere",
    "answer_queries": "cut towards the answer only",
    "cross_fitted": "cross-fitted",
    "leave_layers_out": "groups of farther layers",
    "stable_samples": "stable samples only",
    "calibrated": "calibrated probes",
    "noise same_groups": "noise, same groups",
    "random_tokens same_groups": "random tokens, same groups",
    "random_mass same_groups": "as much attention elsewhere, same groups",
    "answer_queries same_groups": "towards the answer only, same groups",
    "refits": "outer bootstrap",
}


class Row(NamedTuple):
    """One statistic with its interval."""

    value: float
    low: float
    high: float
    p: float
    n: float

    def __str__(self) -> str:
        if not np.isfinite(self.value):
            return markdown.NOTHING
        return f"{self.value:.1f}" + (f" ({self.low:.1f} … {self.high:.1f})" if np.isfinite(self.low) else "")


class Statistics:
    """The CONTROLS of one series, found by what they are."""

    def __init__(self, frame: pd.DataFrame) -> None:
        self.frame = frame

    def rows(self, control: str, statistic: str | None = None, **columns: Any) -> pd.DataFrame:
        """Return rows; a column that is given as None is empty."""
        chosen = self.frame[self.frame["control"] == control]
        if statistic is not None:
            chosen = chosen[chosen["statistic"] == statistic]
        for name, wanted in columns.items():
            chosen = chosen[chosen[name].isna() if wanted is None else chosen[name] == wanted]
        return chosen

    def mean(self, control: str, statistic: str, **columns: Any) -> Row | None:
        """Return the mean over the deeper half of the layers, or a statistic that has no layer; None without one."""
        found = self.rows(control, statistic, **{"layer": None, "at": None, "group": None, **columns})
        return _row(found.iloc[0]) if len(found) else None

    def layers(self, control: str, statistic: str, **columns: Any) -> pd.DataFrame:
        """Return the rows of single layers, in their order."""
        found = self.rows(control, statistic, **{"group": None, **columns})
        return found[found["layer"].notna()].sort_values("layer")


def _row(row: pd.Series) -> Row:
    return Row(*(float(row[name]) for name in ("value", "ci_low", "ci_high", "p", "n")))


@dataclass(frozen=True)
class Question:
    """One thing that a sceptical reader asks, and the statistic that answers it: negative, if the effect is real."""

    asks: str
    statistic: Callable[[Statistics], Row | None]


# A gap, or its difference to that of a control, that lies below zero with its whole interval: the effect is larger.
QUESTIONS = (
    Question(
        "more than probes learn by chance: permuted labels, groups fixed at k*",
        lambda s: s.mean("permuted_labels", "gap_difference", grouping="reference"),
    ),
    Question(
        "more than noise of the probes: cross-fitted, groups fixed at k*",
        lambda s: s.mean("cross_fitted", "gap", grouping="reference"),
    ),
    Question(
        "more than selection at the layer shown: groups of farther layers",
        lambda s: s.mean("leave_layers_out", "gap", grouping="reference"),
    ),
    Question(
        "more than cutting as many other tokens: ΔP of all samples",
        lambda s: s.mean("random_tokens", "delta_p_difference", grouping=None),
    ),
    Question(
        "more than cutting as much attention elsewhere: ΔP of all samples",
        lambda s: s.mean("random_mass", "delta_p_difference", grouping=None),
    ),
    # By groups of its own flips: the same groups have no selection under another cut, and the difference would be it.
    Question(
        "more between the groups than cutting other tokens: each by its own flips, fixed at k*",
        lambda s: s.mean("random_tokens", "gap_difference", grouping="reference"),
    ),
    Question(
        "more than the groups' class: reweighted, groups fixed at k*",
        lambda s: s.mean("class", "gap", grouping="reference", group="reweighted"),
    ),
)


def answer(row: Row | None) -> str:
    """Return whether an effect is there: its interval lies below zero, or above; None where it was not computed."""
    if row is None or not np.isfinite(row.high):
        return markdown.NOTHING
    if row.high < 0:
        return YES
    return NO if row.low > 0 else CANNOT_TELL


def report(
    statistics: pa.Table,
    differences: pa.Table,
    settings: ControlSettings,
    names: Mapping[str, Mapping[str, str]],
    level: float,
) -> str:
    """Return the report as Markdown; ``names``: what ``model`` and ``dataset`` slugs are called."""
    frame = statistics.to_pandas().astype(dict.fromkeys(["model", "dataset", "extractor"], str))
    keys = ["model", "dataset", "extractor"]
    # What all series have in common need not stand above each column.
    told_apart = [name for name in keys if frame[name].nunique() > 1] or ["dataset"]
    series: dict[str, Statistics] = {}
    for _, part in frame.groupby(keys, sort=False):
        words = [_called(names, name, str(part[name].iloc[0])) for name in told_apart]
        series[", ".join(words)] = Statistics(part)
    parts = [
        "# Is the effect real?\n",
        f"{_models(frame, names)}Site `{settings.site}`, position `{settings.position}`; means over the deeper half of "
        f"the layers, with {level:.0%} intervals of a bootstrap over samples (and over a control's draws). A *gap* is "
        "mean ΔP of the "
        "Q-Anchored samples less that of the A-Anchored ones, in percentage points; negative is what the method "
        f"claims. A layer counts for a group with at least {settings.min_n} samples. Everything is in "
        "`controls.parquet`, method and sources in docs/controls.md.\n",
        "**The curve alone shows nothing.** With the grouping `per_layer` a Q-Anchored sample is one whose verdict "
        "flips at the layer that is shown, and a flip has to cross 0.5: any noise draws a solid line far below a "
        "dashed one. What can show something is what such selection cannot make: the gap of groups that were chosen "
        "by other probes or at other layers, and what all samples lose by this cut and not by another.\n",
    ]
    if not series:
        return "\n".join([*parts, "No series has probes, and so no controls; `samples.md` says why.\n"])
    for section in (
        _in_short,
        _gaps,
        _layers,
        _flips,
        _cuts,
        _where,
        _class,
        _strength,
        _dose,
        _two_groups,
        _regrouping,
    ):
        parts += section(series, settings)
    parts += _differences(differences, names)
    return "\n".join(parts)


Series = Mapping[str, Statistics]


def _models(frame: pd.DataFrame, names: Mapping[str, Mapping[str, str]]) -> str:
    """Return the model's name where there is only one, which the columns then do not tell."""
    models = frame["model"].unique()
    return f"Model: {_called(names, 'model', models[0])}. " if len(models) == 1 else ""


def _called(names: Mapping[str, Mapping[str, str]], kind: str, slug: str) -> str:
    return names.get(kind, {}).get(slug, slug)


def _table(title: str, words: str, header: Sequence[str], rows: Sequence[Sequence[Any]]) -> list[str]:
    """Return a section; none where nothing was computed."""
    rows = [row for row in rows if any(cell not in (markdown.NOTHING, None) for cell in row[1:])]
    if not rows:
        return []
    cells = [[markdown.NOTHING if cell is None else str(cell) for cell in row] for row in rows]
    return [f"## {title}\n", f"{words}\n", markdown.table(header, cells)]


def _in_short(series: Series, settings: ControlSettings) -> list[str]:
    found = {question.asks: [question.statistic(each) for each in series.values()] for question in QUESTIONS}
    counts = [
        [asks, *(f"{answer(row)}: {row}" if row else None for row in rows), _confirmed(rows)]
        for asks, rows in found.items()
    ]
    return _table(
        "In short: is the effect …",
        "*Yes*: the whole interval lies below zero; *no*: above; else nobody can tell. The last column counts the "
        "series in which it is below zero when all series are judged together (Holm's correction of their p-values, "
        "0.05; gaps of one estimate have no p and count by their intervals). A number far from zero under *as "
        "measured* (next table) with *cannot tell* here is what selection and chance look like.",
        ["…", *series, "series"],
        counts,
    )


def _confirmed(rows: Sequence[Row | None]) -> str:
    there = [row for row in rows if row is not None and np.isfinite(row.value)]
    if not there:
        return markdown.NOTHING
    p = holm(np.array([row.p for row in there]))
    sure = [
        row.value < 0 and (corrected < 0.05 if np.isfinite(corrected) else row.high < 0)
        for row, corrected in zip(there, p, strict=True)
    ]
    return f"{sum(sure)} of {len(there)}"


def _gaps(series: Series, settings: ControlSettings) -> list[str]:
    rows = []
    for grouping, words in (("per_layer", "per layer"), ("reference", "at k*")):
        for control in NAMES:
            found = [each.mean(control, "gap", grouping=grouping) for each in series.values()]
            rows.append([f"{NAMES[control]} ({words})", *found])
        found = [each.mean("class", "gap", grouping=grouping, group="reweighted") for each in series.values()]
        rows.append([f"both groups with one class mix ({words})", *found])
    return _table(
        "The gap, estimated in other ways",
        "The first line of each grouping is the method's. *Permuted labels*, *noise* and *random tokens* are what "
        "chance draws, with groups by its own flips: the method has to be below them. *Same groups*: the method's "
        "groups under another cut, where a gap of zero is expected. *Cross-fitted*: groups by probes from one half of "
        "the training samples, ΔP by probes from the other; it removes what the probes learnt by chance. *Groups of "
        f"farther layers*: the groups of the best layer more than {settings.leave_layers_out} layers away; it removes "
        "what is special to a layer, too. *Outer bootstrap*: the method's own gap with the interval of probes, k* and "
        "groups found anew; its probes see fewer different samples, so its interval need not hold the estimate.",
        ["gap", *series],
        rows,
    )


def _ranges(layers: Sequence[int]) -> str:
    """Return layers as ranges: 3–5, 9."""
    if not len(layers):
        return "none"
    parts: list[list[int]] = []
    for layer in layers:
        if parts and layer == parts[-1][1] + 1:
            parts[-1][1] = layer
        else:
            parts.append([layer, layer])
    return ", ".join(str(first) if first == last else f"{first}–{last}" for first, last in parts)


def _layers(series: Series, settings: ControlSettings) -> list[str]:
    asked: list[tuple[str, str, str, dict[str, Any]]] = [
        ("permuted labels, gap at k*", "permuted_labels", "gap_difference", {"grouping": "reference"}),
        ("permuted labels, gap per layer", "permuted_labels", "gap_difference", {"grouping": "per_layer"}),
        ("noise, gap per layer", "noise", "gap_difference", {"grouping": "per_layer"}),
        ("noise, flips", "noise", "flip_rate_difference", {"grouping": "per_layer"}),
        ("random tokens, flips", "random_tokens", "flip_rate_difference", {"grouping": "per_layer"}),
        ("random tokens, ΔP of all samples", "random_tokens", "delta_p_difference", {"grouping": None}),
        ("random tokens, gap at k*", "random_tokens", "gap_difference", {"grouping": "reference"}),
        ("as much attention, ΔP of all samples", "random_mass", "delta_p_difference", {"grouping": None}),
    ]  # fmt: skip
    rows = []
    for words, control, statistic, columns in asked:
        cells = []
        for each in series.values():
            found = each.layers(control, statistic, **columns)
            tested = found[found["p"].notna()]
            sign = 1 if "flip" in statistic else -1
            sure = tested[(tested["p"] < 0.05) & (sign * tested["value"] > 0)]
            cells.append(f"{_ranges(sure['layer'].astype(int).tolist())} of {len(tested)}" if len(tested) else None)
        rows.append([words, *cells])
    return _table(
        "At which layers",
        "Layers at which the method shows more than the control: lower ΔP or gap, more flips, p < 0.05 corrected for "
        "the number of layers by the largest statistic of all of them; behind *of* how many layers have enough "
        "samples in both groups. The bands are in the figures.",
        ["more than", *series],
        rows,
    )


def _flips(series: Series, settings: ControlSettings) -> list[str]:
    rows: list[list[Any]] = []
    for control in NAMES:
        found = [each.mean(control, "flip_rate", grouping="per_layer") for each in series.values()]
        rows.append([NAMES[control], *found])
    for control in NAMES:
        found = [each.mean(control, "flip_rate_difference", grouping="per_layer") for each in series.values()]
        if any(row is not None and row.value != 0 for row in found):
            rows.append([f"method less {NAMES[control]}", *found])
    return _table(
        "How many flip",
        "Percent of the test samples, mean over the layers. Permuted labels often flip as many: a probe that learnt "
        "nothing decides near 0.5 and is easily moved. So a flip rate says something against a cut of other tokens "
        "and against noise, and little by itself.",
        ["flips, %", *series],
        rows,
    )


def _cuts(series: Series, settings: ControlSettings) -> list[str]:
    rows: list[list[Any]] = []
    for name in ("random_tokens", "random_mass"):
        facts = {
            "tokens of the exact question": "exact_tokens",
            "blocked tokens": "tokens",
            "attention removed by the exact question's cut, %": "exact_mass",
            "attention removed, %": "mass",
            "samples matched by the question's own tokens, %": "matched",
            "samples with equal attention (± 10%), %": "equal_mass",
        }
        for words, statistic in facts.items():
            rows.append([f"{NAMES[name]}: {words}", *(each.mean(name, statistic) for each in series.values())])
        everybody = [each.mean(name, "delta_p_difference", grouping=None) for each in series.values()]
        rows.append([f"{NAMES[name]}: ΔP of the method less the control's", *everybody])
        for group, words in (("matched", "matched samples only"), ("equal_mass", "equal attention only")):
            found = [each.mean(name, "delta_p_difference", grouping=None, group=group) for each in series.values()]
            rows.append([f"{NAMES[name]}: the same, {words}", *found])
    for words, group in (("Q-Anchored", "q_anchored"), ("A-Anchored", "a_anchored")):
        found = [
            each.mean("answer_queries same_groups", "delta_p", grouping="per_layer", group=group)
            for each in series.values()
        ]
        rows.append([f"cut towards the answer only: ΔP of {words}", *found])
    return _table(
        "Against other cuts",
        "As many tokens as the exact question has, drawn from the rest of the question and, where it has too few, from "
        "template and examples at a similar distance; or so many that as much attention is removed (mean over heads, "
        "layers and later tokens). ΔP of all samples has no groups, and so no selection in it. A cut towards the "
        "answer only leaves the edges inside the prompt.",
        ["", *series],
        rows,
    )


def _where(series: Series, settings: ControlSettings) -> list[str]:
    header = ["", *series]
    rows: list[list[Any]] = []
    widths = sorted(
        {name for each in series.values() for name in each.frame["control"].astype(str) if name.startswith("window_")},
        key=lambda name: int(name.removeprefix("window_")),
    )
    for name in widths:
        cells: list[str | None] = []
        for each in series.values():
            found = each.layers(name, "delta_p", group="q_anchored").dropna(subset=["value"])
            if len(found):
                best = found.sort_values("value").iloc[0]
                cells.append(f"{_row(best)} at {int(best['layer'])}")
            else:
                cells.append(None)
        width = name.removeprefix("window_")
        rows.append([f"lowest window of {width} layer{'s' * (width != '1')}, from its first layer", *cells])
    for place in range(3):
        cells = []
        for each in series.values():
            found = each.rows("heads", "delta_p", group="q_anchored").dropna(subset=["value"]).sort_values("value")
            cells.append(
                f"{_row(found.iloc[place])} at {int(found.iloc[place]['layer'])}.{int(found.iloc[place]['at'])}"
                if len(found) > place
                else None
            )
        rows.append([f"head {place + 1} (layer.head)", *cells])
    return _table(
        "Where the flow happens",
        "Mean ΔP of the Q-Anchored samples (flips at k* under the whole cut) when edges are cut in a window of layers, "
        "or in one head, alone. The lowest of many is low by chance too: read it beside its interval and the figure.",
        header,
        rows,
    )


def _class(series: Series, settings: ControlSettings) -> list[str]:
    rows: list[list[Any]] = []
    for grouping, words in (("per_layer", "per layer"), ("reference", "at k*")):
        for anchor, title in (("q_anchored", "Q-Anchored"), ("a_anchored", "A-Anchored")):
            for kind in ("predicted", "labelled"):
                group = f"{anchor}, {kind} truthful"
                found = [each.mean("class", "share", grouping=grouping, group=group) for each in series.values()]
                rows.append([f"{title}: {kind} truthful, % ({words})", *found])
        for name in ("predicted truthful", "predicted hallucinated"):
            if grouping == "per_layer":
                found = [each.mean("class", "flip_rate", grouping=grouping, group=name) for each in series.values()]
                rows.append([f"flips of those {name}, % ({words})", *found])
            found = [each.mean("class", "gap", grouping=grouping, group=name) for each in series.values()]
            rows.append([f"gap within those {name} ({words})", *found])
        found = [each.mean("class", "gap", grouping=grouping, group="reweighted") for each in series.values()]
        rows.append([f"gap with one class mix ({words})", *found])
        found = [each.mean("class", "covered", grouping=grouping) for each in series.values()]
        rows.append([f"samples in classes that both groups have, % ({words})", *found])
    return _table(
        "Class",
        "Where the two groups differ in what the probe says, part of their gap is that of the classes.",
        ["", *series],
        rows,
    )


def _at(series: Series, control: str, statistic: str, **columns: Any) -> Iterator[tuple[float, list[Row | None]]]:
    """Yield what a control varies, and the statistic of every series there; NaN, all of it, comes last."""
    found = [
        {float(row["at"]): _row(row) for _, row in each.rows(control, statistic, layer=None, **columns).iterrows()}
        for each in series.values()
    ]
    places = sorted({place for each in found for place in each if np.isfinite(place)})
    for place in places:
        yield place, [each.get(place) for each in found]
    whole = [next((row for place, row in each.items() if not np.isfinite(place)), None) for each in found]
    if any(whole):
        yield np.nan, whole


def _strength(series: Series, settings: ControlSettings) -> list[str]:
    rows: list[list[Any]] = []
    for words, control, statistic, columns in (
        ("depth of Q-Anchored", "strength", "delta_p", {"group": "q_anchored"}),
        ("depth, calibrated", "strength calibrated", "delta_p", {"group": "q_anchored"}),
        ("flips, %", "strength", "flip_rate", {}),
        ("temperature", "strength", "temperature", {}),
    ):
        rows += [[f"{words}, C = {at:g}", *found] for at, found in _at(series, control, statistic, **columns)]
    return _table(
        "Strength of the probe",
        "Mean ΔP of Q-Anchored (own flips, per layer) by probes of other regularisation, as they are and with their "
        "probabilities calibrated on the validation split (logits divided by a temperature). A level that moves with C "
        "is not a property of the model; calibration moves no flip.",
        ["", *series],
        rows,
    )


def _dose(series: Series, settings: ControlSettings) -> list[str]:
    rows: list[list[Any]] = []
    for words, statistic, columns in (
        ("flips, %", "flip_rate", {}),
        ("ΔP of all samples", "delta_p", {"group": None}),
        ("ΔP of Q-Anchored", "delta_p", {"group": "q_anchored"}),
    ):
        for at, found in _at(series, "dose", statistic, **columns):
            rows.append([f"{words}, {_tokens(at)}", *found])
    return _table(
        "Dose",
        "So many of the exact question's tokens blocked, all of them where it has fewer; the larger sets hold the "
        "smaller.",
        ["", *series],
        rows,
    )


def _tokens(number: float) -> str:
    if not np.isfinite(number):
        return "all tokens"
    return f"{number:.0f} token{'s' * (number != 1)}"


def _two_groups(series: Series, settings: ControlSettings) -> list[str]:
    rows: list[list[Any]] = []
    for words, statistic in (("dip", "dip"), ("BIC of one Gaussian less that of two", "gain_of_two")):
        cells, null = [], []
        for each in series.values():
            found = each.rows("two groups", statistic, group=None)
            value = _row(found.iloc[0]) if len(found) else None
            digits = 3 if statistic == "dip" else 1
            cells.append(f"{value.value:.{digits}f}, p = {value.p:.2f}" if value else None)
            of_null = each.mean("two groups", statistic, group="permuted labels")
            null.append(f"{of_null.value:.{digits}f}" if of_null else None)
        rows += [[words, *cells], [f"{words}, permuted labels", *null]]
    for name, words in (("threshold", "a threshold"), ("component", "two Gaussians")):
        for statistic, format_ in (("agreement", "{:.0f}%"), ("kappa", "{:.2f}")):
            cells = []
            for each in series.values():
                there = each.rows("two groups", statistic, group=name)
                share = float(there.iloc[0]["value"]) if len(there) else np.nan
                cells.append(format_.format(share) if np.isfinite(share) else None)
            rows.append([f"groups by {words}: {statistic} with the flips", *cells])
    return _table(
        "Two groups or one?",
        "ΔP of the single samples at k*. p is the share of permuted-label draws that look at least as much like two "
        f"groups; with {settings.permuted_labels} draws it cannot be below "
        f"{1 / (1 + settings.permuted_labels):.2f}. A BIC difference below zero says one group.",
        ["", *series],
        rows,
    )


def _regrouping(series: Series, settings: ControlSettings) -> list[str]:
    rows: list[list[Any]] = []
    for words, statistic, group in (
        ("verdicts that agree with the sample's majority, over layers, %", "agreement", "layers"),
        ("the same, over refitted probes, %", "agreement", "refits"),
        (f"stable samples (at least {settings.stable:.0%} of the layers), %", "stable", "layers"),
        ("stable and Q-Anchored, %", "stable q_anchored", "layers"),
    ):
        for chance, by in (("", ""), (" by chance", ", expected by chance")):
            found = [each.mean("regrouping", statistic + chance, group=group) for each in series.values()]
            rows.append([words + by, *found])
    groups = {
        group: None for each in series.values() for group in each.rows("regrouping", "kappa")["group"].astype(str)
    }
    for group in groups:
        found = [each.mean("regrouping", "kappa", group=group) for each in series.values()]
        words = "kappa of the groupings" if group == "per_layer and reference" else f"kappa with {group}"
        rows.append([words, *(f"{row.value:.2f}" if row else None for row in found)])
    return _table(
        "Would a sample be grouped so again?",
        "Layers of the deeper half. *Expected by chance*: as many flips at each layer, dealt out among the samples at "
        "random. Kappa is agreement beyond chance, 1 at most: of the anchors at k* with those at each layer, and with "
        "the anchors at k* of another site or position.",
        ["", *series],
        rows,
    )


def _differences(table: pa.Table, names: Mapping[str, Mapping[str, str]]) -> list[str]:
    if not len(table):
        return []
    frame = table.to_pandas()

    def whose(row: pd.Series, prefix: str) -> str:
        model, dataset = row[f"{prefix}model"], row[f"{prefix}dataset"]
        return f"{_called(names, 'model', model)}, {_called(names, 'dataset', dataset)}"

    words = {"delta_p": "ΔP of Q-Anchored", "gap": "gap", "flip_rate": "flips, %"}
    rows = [
        [
            f"{words[row['statistic']]} ({row['grouping']})",
            whose(row, ""),
            whose(row, "other_"),
            f"{row['value']:.1f} ({row['ci_low']:.1f} … {row['ci_high']:.1f})",
            f"{row['p']:.3f}",
        ]
        for _, row in frame.iterrows()
    ]
    return _table(
        "Models and data sets against each other",
        "The first less the second, means over the deeper half of the layers; p corrected for all pairs of a line "
        "(Holm). Levels follow the probes' strength, which was chosen for each series: compare them with care.",
        ["", "first", "second", "difference", "p"],
        rows,
    )
