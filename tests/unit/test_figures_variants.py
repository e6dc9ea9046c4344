"""Which files a configured figure becomes."""

import subprocess
import sys

import pytest

from deltap.errors import DeltapError
from deltap.figures.variants import figure_variants
from deltap.settings import DeltaPFigure

SITES, POSITIONS, GROUPINGS = ["attn", "mlp"], ["last", "exact_answer_last"], ["per_layer", "reference"]


def test_a_figure_that_names_everything_is_one_file_of_its_name():
    entry = DeltaPFigure(extractor="auto")
    assert figure_variants("delta_p", entry, SITES, POSITIONS, GROUPINGS, ["auto"]) == {"delta_p": entry}


def test_null_means_a_file_for_each_that_the_run_measures():
    entry = DeltaPFigure(site=None, position="last", grouping=None, width=5)
    found = figure_variants("all", entry, SITES, POSITIONS, GROUPINGS, ["auto"])
    assert list(found) == [
        "all_per_layer_attn_last",
        "all_per_layer_mlp_last",
        "all_reference_attn_last",
        "all_reference_mlp_last",
    ]
    last = DeltaPFigure(site="mlp", position="last", grouping="reference", extractor="auto", width=5)
    assert found["all_reference_mlp_last"] == last


def test_every_null_gives_the_whole_product():
    entry = DeltaPFigure(site=None, position=None, grouping=None)
    assert len(figure_variants("all", entry, SITES, POSITIONS, GROUPINGS, ["auto"])) == 8


def test_several_extractors_give_a_file_each():
    both = ["auto", "rules"]
    assert list(figure_variants("delta_p", DeltaPFigure(), SITES, POSITIONS, GROUPINGS, both)) == [
        "delta_p_auto",
        "delta_p_rules",
    ]
    one = DeltaPFigure(extractor="rules")
    assert list(figure_variants("delta_p", one, SITES, POSITIONS, GROUPINGS, both)) == ["delta_p"]


def test_a_figure_of_what_is_not_measured_is_refused_by_name():
    with pytest.raises(DeltapError, match=r"figure 'delta_p': site 'attn' is not measured in this run \(valid: mlp\)"):
        figure_variants("delta_p", DeltaPFigure(), ["mlp"], POSITIONS, GROUPINGS, ["auto"])


def test_naming_files_loads_nothing_heavy():
    imports = "import sys, deltap.figures.variants; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", imports], capture_output=True, text=True, check=True).stdout
    assert not {"matplotlib", "seaborn", "pandas", "pyarrow", "numpy", "torch"} & set(loaded.split())
