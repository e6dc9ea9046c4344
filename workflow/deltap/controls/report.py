"""The report on the controls, to read: is the effect more than selection, chance and cutting anything would give?"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

from deltap import markdown
from deltap.controls.lookup import Row, Series, Statistics, as_row
from deltap.controls.questions import CHANCE, ESTIMATORS, answer, questions
from deltap.settings import ControlSettings, ControlsStage
from deltap.statistics import holm

NAMES = {
    "exact_question": "as measured",
    **CHANCE,
    "answer_queries": "cut towards the answer only",
    "cross_fitted": "cross-fitted",
    "refits": "outer bootstrap",
}


def _numbers(rows: Sequence[Row | None], digits: int) -> list[str | None]:
    """Return numbers that have no interval, with so many digits."""
    return [f"{row.value:.{digits}f}" if row and np.isfinite(row.value) else None for row in rows]


@dataclass(frozen=True)
class _Context:
    """What the report is of, besides the numbers."""

    settings: ControlSettings
    level: float
    directed: bool
    """Whether ΔP below zero is a loss of evidence: only of the predicted class."""
    strength: str
    """What the probe's strength is called."""

    @property
    def alpha(self) -> float:
        return round(1 - self.level, 6)


def report(
    statistics: pa.Table, differences: pa.Table, stage: ControlsStage, names: Mapping[str, Mapping[str, str]]
) -> str:
    """Return the report as Markdown; ``names``: what ``model`` and ``dataset`` slugs are called."""
    settings, level = stage.controls, stage.bootstrap.level
    frame = statistics.to_pandas().astype(dict.fromkeys(["model", "dataset", "extractor"], str))
    keys = ["model", "dataset", "extractor"]
    # What all series have in common need not stand above each column.
    told_apart = [name for name in keys if frame[name].nunique() > 1] or ["dataset"]
    series: dict[str, Statistics] = {}
    for _, part in frame.groupby(keys, sort=False):
        words = [_called(names, name, str(part[name].iloc[0])) for name in told_apart]
        called = ", ".join(words)
        if called in series:  # two of one label
            called += f" ({', '.join(str(part[name].iloc[0]) for name in told_apart)})"
        series[called] = Statistics(part)
    context = _Context(
        settings,
        level,
        stage.reference_class.startswith("predicted"),
        "C" if stage.probe.kind == "logistic" else "weight decay",
    )
    parts = [
        "# Is the effect real?\n",
        f"{_models(frame, names)}Site `{settings.site}`, position `{settings.position}`, ΔP of the class "
        f"`{stage.reference_class}`; means over the deeper half of the layers, with {level:.0%} intervals of a "
        f"bootstrap over samples and over a control's draws ({_draws(settings)}). A *gap* is mean ΔP of the Q-Anchored "
        "samples less that of the A-Anchored ones, in percentage points; negative is what the method claims. A layer "
        f"counts for a group with at least {settings.min_n} samples. Everything is in `controls.parquet`, method and "
        "sources in docs/controls.md.\n",
        "**The curve alone shows nothing.** With the grouping `per_layer` a Q-Anchored sample is one whose verdict "
        "flips at the layer that is shown, and a flip has to cross 0.5: any noise draws a solid line far below a "
        "dashed one. Groups of other probes or layers help less than it seems, for what a cut disturbs is carried from "
        "layer to layer. What can show something is a comparison in which selection is the same on both sides: the "
        "same estimator for this cut and for another one, or what all samples lose by each.\n",
    ]
    if not series:
        return "\n".join([*parts, "No series has probes, and so no controls; `samples.md` says why.\n"])
    for section in (
        _in_short,
        _layers,
        _gaps,
        _other_gaps,
        _flips,
        _cuts,
        _where,
        _class,
        _strength,
        _dose,
        _two_groups,
        _regrouping,
    ):
        parts += section(series, context)
    parts += _differences(differences, names)
    return "\n".join(parts)


def _draws(settings: ControlSettings) -> str:
    """Return how many draws each control has that has several."""
    cuts = settings.interventions
    numbers = {
        "permuted labels": settings.permuted_labels,
        "noise": settings.noise,
        "random tokens": cuts.random_tokens if cuts else 0,
        "as much attention": cuts.random_mass if cuts else 0,
    }
    return ", ".join(f"{name}: {number}" for name, number in numbers.items() if number) or "none has any"


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


def _in_short(series: Series, context: _Context) -> list[str]:
    rows = []
    for question in questions(series):
        found = [question.statistic(each) for each in series.values()]
        words_of = [answer(row) if context.directed else markdown.NOTHING for row in found]
        cells = [
            row if word == markdown.NOTHING else f"{word}: {row}" for word, row in zip(words_of, found, strict=True)
        ]
        rows.append([question.asks, *cells, _confirmed(found, context)])
    if not rows:
        return ["No other cut was made (`controls: interventions`), and nothing else can answer.\n"]
    words = (
        "*Yes*: the whole interval lies below zero; *no*: above; else nobody can tell. The last column counts the "
        "series in which it is below zero when all series are judged together (Holm's correction of their p-values, "
        f"{context.alpha:g}). "
        if context.directed
        else "For this reference class a number below zero is no loss of evidence, so there is no yes or no; the last "
        "column counts the series in which it differs from zero when all are judged together (Holm's correction, "
        f"{context.alpha:g}). "
    )
    return _table(
        "In short: is the effect …",
        words
        + "Every line is the method less another cut, both by the same estimator. *Cannot tell* may be selection, "
        "chance, or too few samples. *Yes* is more than the other cut does, which may disturb the model less: *SD of "
        "the logit's change* below tells.",
        ["…", *series, "series"],
        rows,
    )


def _confirmed(rows: Sequence[Row | None], context: _Context) -> str:
    there = [row for row in rows if row is not None and np.isfinite(row.value)]
    if not there:
        return markdown.NOTHING
    corrected = holm(np.array([row.p for row in there]))
    sure = [p < context.alpha and _shows(row.value, context) for row, p in zip(there, corrected, strict=True)]
    return f"{sum(sure)} of {len(there)}"


def _shows(value: float, context: _Context) -> bool:
    return value < 0 or not context.directed


def _gaps(series: Series, context: _Context) -> list[str]:
    rows: list[list[Any]] = []
    for estimator in ESTIMATORS:
        rows.append([f"the method: {estimator.words}", *(estimator.method(each) for each in series.values())])
        for chance, words in CHANCE.items():
            rows.append([f"{words}: {estimator.words}", *(estimator.by(chance, each) for each in series.values())])
    return _table(
        "The gap, and what gives one without an effect",
        "The method by each estimator, and below it the same estimator where there is no effect to be found. "
        "*Own flips*: groups by the flips under that very cut. *Cross-fitted*: groups by probes from one half of the "
        "training samples, ΔP by probes from the other; it removes what the probes learnt by chance. *Groups of "
        f"farther layers*: those of the best layer more than {context.settings.leave_layers_out} layers away; it "
        "removes what is special to a layer, too. *One class mix*: both groups reweighted to the classes of all "
        "samples. In standard deviations probes that decide near 0.5, as those on permuted labels do, and "
        "sure ones are alike.",
        ["gap", *series],
        rows,
    )


def _other_gaps(series: Series, context: _Context) -> list[str]:
    rows: list[list[Any]] = []
    for words, control in (
        ("calibrated probes", "calibrated"),
        ("stable samples only", "stable_samples"),
        ("outer bootstrap, mean of the refits", "refits"),
        *((f"{words}, the method's groups", f"{name} same_groups") for name, words in CHANCE.items()),
    ):
        for grouping, at in (("per_layer", "per layer"), ("reference", "at k*")):
            # Stable samples have one group at all layers.
            where = f" ({at})" if control != "stable_samples" else ""
            found = [each.mean(control, "gap", grouping=grouping) for each in series.values()]
            rows.append([f"{words}{where}", *found])
    return _table(
        "The gap, otherwise",
        "*Stable samples* were selected at the layers they are shown at. *Outer bootstrap*: probes, k* and groups "
        "found anew; its probes see fewer different samples, and what its mean is away from the method's is that bias. "
        "*The method's groups* under another cut have no selection by it: near zero is expected, and the difference to "
        "the method's gap is no measure of an effect.",
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


def _layers(series: Series, context: _Context) -> list[str]:
    def of_flips(control: str) -> Callable[[Statistics], pd.DataFrame]:
        return lambda s: s.layers(control, "flip_rate_difference", grouping="per_layer")

    asked = [(question.asks, question.layers, False) for question in questions(series)]
    asked += [
        (f"more flips than with {CHANCE[name]}", of_flips(name), True) for name in ("random_tokens", "random_mass")
    ]
    rows = []
    for words, layers, of_more in asked:
        cells = []
        for each in series.values():
            found = layers(each)
            tested = found[found["p"].notna()]
            sure = [
                int(row["layer"])
                for _, row in tested.iterrows()
                if row["p"] < context.alpha and (row["value"] > 0 if of_more else _shows(row["value"], context))
            ]
            cells.append(f"{_ranges(sure)} of {len(tested)}" if len(tested) else None)
        rows.append([words, *cells])
    return _table(
        "At which layers",
        f"Layers at which the method shows more than the control, p < {context.alpha:g} corrected for the number of "
        "layers by the largest statistic of all of them; behind *of* how many layers have enough samples in both "
        "groups. The bands are in the figures.",
        ["is the effect …", *series],
        rows,
    )


def _flips(series: Series, context: _Context) -> list[str]:
    rows: list[list[Any]] = []
    for control, words in NAMES.items():
        found = [each.mean(control, "flip_rate", grouping="per_layer") for each in series.values()]
        rows.append([words, *found])
    for control, words in NAMES.items():
        found = [each.mean(control, "flip_rate_difference", grouping="per_layer") for each in series.values()]
        rows.append([f"method less {words}", *found])
    return _table(
        "How many flip",
        "Percent of the test samples. A probe that decides near 0.5 flips easily, whatever it learnt, as those on "
        "permuted labels do: read a flip rate against that of another cut by the same probes.",
        ["flips, %", *series],
        rows,
    )


def _cuts(series: Series, context: _Context) -> list[str]:
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
    everybody = [each.mean("exact_question", "delta_p", grouping=None) for each in series.values()]
    rows.append(["the exact question's cut: ΔP of all samples", *everybody])
    for words, control, columns in (
        ("ΔP of all samples", "answer_queries", {"grouping": None}),
        ("ΔP of Q-Anchored", "answer_queries same_groups", {"grouping": "per_layer", "group": "q_anchored"}),
        ("ΔP of A-Anchored", "answer_queries same_groups", {"grouping": "per_layer", "group": "a_anchored"}),
    ):
        found = [each.mean(control, "delta_p", **columns) for each in series.values()]
        rows.append([f"cut towards the answer only: {words}", *found])
    less = [each.mean("answer_queries", "delta_p_difference", grouping=None) for each in series.values()]
    rows.append(["the whole cut's ΔP of all samples less that towards the answer only", *less])
    for name, words in (NAMES | {"exact_question": "the exact question's cut"}).items():
        found = [each.mean(name, "logit_change") for each in series.values()]
        rows.append([f"{words}: SD of the logit's change", *_numbers(found, 2)])
    return _table(
        "Against other cuts",
        "As many tokens as the exact question has, drawn from the rest of the question and, where it has too few, from "
        "template and examples at a similar distance; or so many that as much attention is removed (mean over heads, "
        "layers and the sample's own tokens). ΔP of all samples has no groups, and so no selection in it. A cut "
        "towards the answer only leaves the edges inside the prompt; its groups are those of the whole cut. *SD of the "
        "logit's change*: how far a cut moves the probe at all; a control that moves it less is a weaker disturbance.",
        ["", *series],
        rows,
    )


def _where(series: Series, context: _Context) -> list[str]:
    rows: list[list[Any]] = []
    widths = sorted(
        {name for each in series.values() for name in each.frame["control"].astype(str) if name.startswith("window_")},
        key=lambda name: int(name.removeprefix("window_")),
    )
    for name in widths:
        width = name.removeprefix("window_")
        lowest = [_lowest(each.layers(name, "delta_p", group="q_anchored")) for each in series.values()]
        cells = [f"{as_row(row)} at {int(row['layer'])}" if row is not None else None for row in lowest]
        rows.append([f"lowest window of {width} layer{'s' * (width != '1')}, from its first layer", *cells])
        there = []
        for each, row in zip(series.values(), lowest, strict=True):
            others = each.layers(name, "delta_p", group="a_anchored")
            others = others[others["layer"] == row["layer"]] if row is not None else others[:0]
            there.append(as_row(others.iloc[0]) if len(others) else None)
        rows.append(["the A-Anchored samples there", *there])
    for place in range(3):
        cells = []
        for each in series.values():
            found = each.rows("heads", "delta_p", group="q_anchored").dropna(subset=["value"]).sort_values("value")
            cells.append(
                f"{as_row(found.iloc[place])} at {int(found.iloc[place]['layer'])}.{int(found.iloc[place]['at'])}"
                if len(found) > place
                else None
            )
        rows.append([f"head {place + 1} (layer.head)", *cells])
    return _table(
        "Where the flow happens",
        "Mean ΔP of the Q-Anchored samples (flips at k* under the whole cut) when edges are cut in a window of layers, "
        "or in one head, alone. They were selected by the layer k* at which they are read, and the lowest of many is "
        "low by chance too: read it beside the A-Anchored samples, its interval and the figure.",
        ["", *series],
        rows,
    )


def _lowest(rows: pd.DataFrame) -> pd.Series | None:
    rows = rows.dropna(subset=["value"])
    return rows.sort_values("value").iloc[0] if len(rows) else None


def _class(series: Series, context: _Context) -> list[str]:
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
        {float(row["at"]): as_row(row) for _, row in each.rows(control, statistic, layer=None, **columns).iterrows()}
        for each in series.values()
    ]
    places = sorted({place for each in found for place in each if np.isfinite(place)})
    for place in places:
        yield place, [each.get(place) for each in found]
    whole = [next((row for place, row in each.items() if not np.isfinite(place)), None) for each in found]
    if any(whole):
        yield np.nan, whole


def _strength(series: Series, context: _Context) -> list[str]:
    name = context.strength
    rows: list[list[Any]] = []
    for words, control, statistic, columns, digits in (
        ("depth of Q-Anchored", "strength", "delta_p", {"group": "q_anchored"}, None),
        ("depth, calibrated", "strength calibrated", "delta_p", {"group": "q_anchored"}, None),
        ("flips, %", "strength", "flip_rate", {}, None),
        ("AUROC, validation", "strength", "auroc", {}, 2),
        ("temperature", "strength", "temperature", {}, 2),
    ):
        for at, found in _at(series, control, statistic, **columns):
            cells = found if digits is None else _numbers(found, digits)
            rows.append([f"{words}, {name} = {at:g}", *cells])
    return _table(
        "Strength of the probe",
        "Mean ΔP of Q-Anchored (own flips, per layer) by probes of other regularisation, as they are and with their "
        f"probabilities calibrated on the validation split (logits divided by a temperature). A level that moves with "
        f"{name} is not a property of the model; calibration moves no flip.",
        ["", *series],
        rows,
    )


def _dose(series: Series, context: _Context) -> list[str]:
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
        "smaller. Q-Anchored are those that flip when all are blocked, so their last line is a selected one; all "
        "samples are not.",
        ["", *series],
        rows,
    )


def _tokens(number: float) -> str:
    if not np.isfinite(number):
        return "all tokens"
    return f"{number:.0f} token{'s' * (number != 1)}"


def _two_groups(series: Series, context: _Context) -> list[str]:
    rows: list[list[Any]] = []
    for words, statistic, digits in (("dip", "dip", 3), ("BIC of one Gaussian less that of two", "gain_of_two", 1)):
        cells: list[str | None] = []
        for each in series.values():
            value = each.mean("two groups", statistic, layer=each.k_star)
            p = f", p = {value.p:.2f}" if value and np.isfinite(value.p) else ""
            cells.append(f"{value.value:.{digits}f}{p}" if value else None)
        null = [each.mean("two groups", statistic, group="permuted labels") for each in series.values()]
        rows += [[words, *cells], [f"{words}, permuted labels", *_numbers(null, digits)]]
        if statistic == "dip":
            own = [each.mean("two groups", "dip_p", layer=each.k_star) for each in series.values()]
            rows.append(["dip: p against one mode", *_numbers(own, 3)])
    for name, words in (("threshold", "a threshold"), ("component", "two Gaussians")):
        for statistic, digits, unit in (("agreement", 0, ", %"), ("kappa", 2, "")):
            found = [each.mean("two groups", statistic, group=name, layer=each.k_star) for each in series.values()]
            rows.append([f"groups by {words}: {statistic} with the flips{unit}", *_numbers(found, digits)])
    draws = context.settings.permuted_labels
    limits = f" With {draws} draws it cannot be below {1 / (1 + draws):.2f}." if draws else ""
    return _table(
        "Two groups or one?",
        f"ΔP of the single samples at k*. p: the share of permuted-label draws that look at least as much like two "
        f"groups.{limits} *Against one mode*: the dip test's own, against a uniform distribution. A BIC difference "
        "below zero says one group; above, two, or one that is skewed.",
        ["", *series],
        rows,
    )


def _regrouping(series: Series, context: _Context) -> list[str]:
    rows: list[list[Any]] = []
    for words, statistic, group in (
        ("verdicts that agree with the sample's majority, over layers, %", "agreement", "layers"),
        ("the same, over refitted probes, %", "agreement", "refits"),
        (f"stable samples (at least {context.settings.stable:.0%} of the layers), %", "stable", "layers"),
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
        rows.append([words, *_numbers(found, 2)])
    return _table(
        "Would a sample be grouped so again?",
        "Layers of the deeper half. *Expected by chance*: as many flips at each layer, dealt out at random among the "
        "samples that the probe gives the same class. Kappa is agreement beyond chance, 1 at most: of the anchors at "
        "k* with those at each layer, and with the anchors at k* of another site or position.",
        ["", *series],
        rows,
    )


def _differences(table: pa.Table, names: Mapping[str, Mapping[str, str]]) -> list[str]:
    if not len(table):
        return []
    frame = table.to_pandas()
    several = frame["extractor"].nunique() > 1
    models = {*frame["model"], *frame["other_model"]}

    def whose(row: pd.Series, prefix: str) -> str:
        model = f"{_called(names, 'model', row[f'{prefix}model'])}, " if len(models) > 1 else ""
        which = f", {row['extractor']}" if several else ""
        return f"{model}{_called(names, 'dataset', row[f'{prefix}dataset'])}{which}"

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
