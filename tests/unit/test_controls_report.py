"""The report on the controls, from rows that say what has to stand in it."""

import pyarrow as pa
import pytest

from deltap.controls.report import report
from deltap.settings import BootstrapSettings, ControlSettings, ControlsStage, ProbeSettings
from deltap.tables import CONTROLS, DIFFERENCES

NAMES = {"model": {"m": "Model"}, "dataset": {"d": "Questions", "e": "Others"}}


def stage(**keys):
    keys = {"controls": ControlSettings(), "probe": ProbeSettings(), "bootstrap": BootstrapSettings(),
            "groupings": ("per_layer", "reference"), "reference_class": "predicted", **keys}  # fmt: skip
    return ControlsStage(**keys)


def row(control, statistic, value, low=None, high=None, p=None, dataset="d", extractor="auto", **columns):
    return {"model": "m", "dataset": dataset, "extractor": extractor, "site": "attn", "position": "exact_answer_last",
            "control": control, "statistic": statistic, "value": value, "ci_low": low, "ci_high": high, "p": p,
            "n": 50, **columns}  # fmt: skip


def text(*rows, differences=(), **keys):
    table = pa.Table.from_pylist(list(rows), CONTROLS)
    return report(table, pa.Table.from_pylist(list(differences), DIFFERENCES), stage(**keys), NAMES)


def cells(text, start):
    """Return the cells of the first row that begins so."""
    line = next(line for line in text.splitlines() if line.startswith(f"| {start}"))
    return [cell.strip() for cell in line.strip("|").split("|")][1:]


def asked(value, low, high, p, dataset):
    return row("random_tokens", "delta_p_difference", value, low, high, p, dataset)


ALL = "more than cutting as many other tokens: ΔP of all samples"


def test_yes_no_and_cannot_tell_are_the_interval_s():
    found = text(asked(-3, -4, -2, 0.01, "d"), asked(-1, -3, 1, 0.4, "e"))
    assert cells(found, ALL) == ["yes: -3.0 (-4.0 … -2.0)", "cannot tell: -1.0 (-3.0 … 1.0)", "1 of 2"]
    assert cells(text(asked(3, 2, 4, 0.01, "d")), ALL) == ["no: 3.0 (2.0 … 4.0)", "0 of 1"]
    assert cells(text(asked(-3, -4, -2, 0.01, "d"), asked(None, None, None, None, "e")), ALL)[1:] == ["–", "1 of 1"]


def test_series_are_judged_together():
    """p = 0.03 alone is below 0.05, and of two it is not."""
    assert cells(text(asked(-3, -4, -1, 0.03, "d")), ALL)[-1] == "1 of 1"
    assert cells(text(asked(-3, -4, -1, 0.03, "d"), asked(-3, -4, -1, 0.04, "e")), ALL)[-1] == "0 of 2"


def test_the_level_is_the_runs():
    wide = {"bootstrap": BootstrapSettings(level=0.9)}
    found = text(asked(-3, -4, -1, 0.08, "d"), **wide)
    assert cells(found, ALL)[-1] == "1 of 1"
    assert "with 90% intervals" in found
    assert "p < 0.1 corrected" in text(
        asked(-3, -4, -1, 0.08, "d"), {**asked(-3, -4, -1, 0.08, "d"), "layer": 3}, **wide
    )


@pytest.mark.parametrize("reference_class", ["truthful", "gold"])
def test_where_below_zero_is_no_loss_there_is_no_yes(reference_class):
    found = text(asked(-3, -4, -2, 0.01, "d"), reference_class=reference_class)
    assert cells(found, ALL) == ["-3.0 (-4.0 … -2.0)", "1 of 1"]
    assert cells(text(asked(3, 2, 4, 0.01, "d"), reference_class=reference_class), ALL)[-1] == "1 of 1"
    assert f"ΔP of the class `{reference_class}`" in found
    assert "there is no yes or no" in found


def test_layers_are_listed_where_the_method_shows_more():
    found = [(-3, 0.01), (-3, 0.01), (-3, 0.2), (3, 0.01), (-3, 0.04), (None, None)]
    rows = [{**asked(value, -9, 9, p, "d"), "layer": layer} for layer, (value, p) in enumerate(found)]
    layers = text(asked(-3, -4, -2, 0.01, "d"), *rows).split("## At which layers")[1]
    assert cells(layers, ALL) == ["0–1, 4 of 5"]
    rows = [row("random_tokens", "flip_rate_difference", value, p=0.01, grouping="per_layer") for value in (5, -5)]
    flips = [{**each, "layer": layer} for layer, each in enumerate(rows)]
    assert cells(text(*flips), "more flips than with random tokens cut") == ["0 of 2"]  # layer 0 of two


def test_without_another_cut_nothing_is_answered():
    found = text(row("exact_question", "gap", -30, -35, -25, grouping="per_layer"),
                 row("permuted_labels", "gap", -25, -30, -20, grouping="per_layer"))  # fmt: skip
    assert "No other cut was made (`controls: interventions`)" in found
    assert "yes:" not in found
    assert cells(found, "the method: own flips, per layer") == ["-30.0 (-35.0 … -25.0)"]
    assert cells(found, "permuted labels: own flips, per layer") == ["-25.0 (-30.0 … -20.0)"]


@pytest.mark.parametrize(("kind", "name"), [("logistic", "C"), ("mlp", "weight decay")])
def test_the_strength_has_its_probes_name(kind, name):
    found = text(row("strength", "auroc", 0.7512, at=0.03), probe=ProbeSettings(kind=kind))
    assert cells(found, f"AUROC, validation, {name} = 0.03") == ["0.75"]


def test_what_is_not_there_is_no_number():
    """Kappa of one group is none; without permuted labels there is no p."""
    found = text(
        row("regrouping", "kappa", None, group="per_layer and reference"),
        row("regrouping", "kappa", 0.5, group="mlp, last"),
        row("two groups", "dip", 0.0312, layer=3),
        row("two groups", "dip_p", 0.42, layer=3),
        controls=ControlSettings(permuted_labels=0),
    )
    assert "nan" not in found
    assert cells(found, "dip ") == ["0.031"]
    assert cells(found, "dip: p against one mode") == ["0.420"]
    assert cells(found, "kappa with mlp, last") == ["0.50"]
    assert "draws it cannot be below" not in found


def test_differences_name_what_tells_the_series_apart():
    def difference(extractor, other_model="m"):
        return {"model": "m", "dataset": "d", "other_model": other_model, "other_dataset": "e", "extractor": extractor,
                "site": "attn", "position": "exact_answer_last", "statistic": "gap", "grouping": "reference",
                "value": -5.0, "ci_low": -8.0, "ci_high": -2.0, "p": 0.01}  # fmt: skip

    any_row = asked(-3, -4, -2, 0.01, "d")
    one = text(any_row, differences=[difference("auto")])
    assert cells(one, "gap (reference)") == ["Questions", "Others", "-5.0 (-8.0 … -2.0)", "0.010"]
    two = text(any_row, differences=[difference("auto"), difference("rules")])
    assert cells(two, "gap (reference)")[0] == "Questions, auto"
    models = text(any_row, differences=[difference("auto", "n")])
    assert cells(models, "gap (reference)")[:2] == ["Model, Questions", "n, Others"]


def test_a_run_without_probes_says_so():
    assert "No series has probes" in report(CONTROLS.empty_table(), DIFFERENCES.empty_table(), stage(), NAMES)
