"""Which change of the configuration or the code reruns which rules: a table, checked by dry runs of a finished run."""

import os
import shutil

import pytest
from running import ROOT, changed, planned, snakemake, with_definition, with_figure

pytestmark = pytest.mark.xdist_group("workflow")  # one run serves these files

# A stage and what follows from it.
FIGURES = {"figure_delta_p", "figure_auroc"}
SUMMARY = {"merge", "summarise", "verdict", "figure_delta_p"}
DELTA_P = {"delta_p", *SUMMARY}
PROBES = {"probes", "anchors", *DELTA_P, *FIGURES}
LABELS = {"labels", "samples", "extraction", *PROBES}
INFERENCE = {"inference", *LABELS}
QUESTIONS = {"questions", *INFERENCE}

SPLITS = {"train": 0.4, "validation": 0.25, "test": 0.35}
CONFIGURATION = {
    "nothing": ({}, set()),
    "the interval": ({"bootstrap": {"draws": 100}}, {"summarise", "verdict", "figure_delta_p"}),
    "the reference class": ({"reference_class": "gold"}, DELTA_P),
    "the probe": ({"probe": {"regularisation": [0.5]}}, PROBES),
    "the labels": ({"labels": {"match": "containment"}}, LABELS),
    "the site": ({"inference": {"sites": ["attn", "mlp"], "positions": ["exact_answer_last"]}}, INFERENCE),
    "the extractor": ({"extractors": ["rules"]}, INFERENCE),
    "the prompt": ({"prompt": {"message": "{question}"}}, INFERENCE),
    "the number of questions": ({"questions": {"number": 60, "splits": SPLITS}}, QUESTIONS),
}
DEFINITIONS = {
    "a figure's colours": (("figure", "delta_p", {"palette": "colorblind"}), {"figure_delta_p"}),
    "what a model's jobs ask the machine for": (
        ("model", "tiny-base", {"gpus": 2, "memory_mb": 99000, "walltime_minutes": 9}),
        set(),
    ),
}
CODE = {
    "how ticks are placed": (
        "workflow/deltap/figures/style.py",
        "list(range(0, layers, step))",
        "list(range(0, layers, 2 * step))",
        FIGURES,
    ),
    "how a probe is fitted": ("workflow/deltap/probes.py", "return fits, losses", "return fits[:1], losses", PROBES),
    "how attention is cut": (
        "workflow/deltap/models/knockout.py",
        "return (weights.to(query.dtype) @ value)",
        "return (2 * weights.to(query.dtype) @ value)",
        INFERENCE,
    ),
}


@pytest.fixture(scope="module")
def drawn(finished, configfile):
    """The configuration of the finished run, with two figures that are drawn."""
    mine = changed(configfile, figures=["delta_p", "auroc"])
    snakemake(mine.parent, mine, "figures")
    return mine


def reruns(configfile, checkout=ROOT):
    return set(planned(snakemake(configfile.parent, configfile, "-n", checkout=checkout).stdout))


@pytest.mark.parametrize("name", CONFIGURATION)
def test_a_changed_setting_reruns_what_depends_on_it_and_nothing_else(drawn, name):
    change, expected = CONFIGURATION[name]
    assert reruns(changed(drawn, **change)) == expected


@pytest.mark.parametrize(
    ("name", "expected"),
    [("base/tokenizer.json", INFERENCE), ("base/model.safetensors", INFERENCE), ("capitals.tsv", QUESTIONS)],
)
def test_a_file_that_an_older_one_replaces_reruns_what_depends_on_it(drawn, name, expected):
    """Files come from archives and other disks with times of their own, and may have the same size."""
    path = drawn.parent / name
    kept = path.with_suffix(".kept")
    path.rename(kept)
    content = bytearray(kept.read_bytes())
    content[-2] ^= 1
    path.write_bytes(content)
    os.utime(path, (1, 1))
    try:
        assert reruns(drawn) == expected
    finally:
        kept.replace(path)
    os.utime(path, (1, 1))  # the same content, since another time
    assert reruns(drawn) == set()


@pytest.mark.parametrize("name", DEFINITIONS)
def test_a_changed_definition_reruns_what_depends_on_it_and_nothing_else(drawn, name):
    (kind, entry, change), expected = DEFINITIONS[name]
    assert reruns(with_definition(drawn, kind, entry, **change)) == expected


@pytest.fixture
def checkout(tmp_path):
    """A copy of the workflow, whose files are newer than the results."""
    shutil.copy(ROOT / "Snakefile", tmp_path)
    for folder in ("config", "envs", "scripts", "workflow"):
        shutil.copytree(ROOT / folder, tmp_path / folder, ignore=shutil.ignore_patterns("__pycache__"))
    return tmp_path


@pytest.mark.parametrize("name", CODE)
def test_changed_logic_of_a_stage_reruns_that_stage_and_what_follows(drawn, checkout, name):
    file, old, new, expected = CODE[name]
    text = (checkout / file).read_text("utf-8")
    assert text.count(old) == 1
    (checkout / file).write_text(text.replace(old, new), "utf-8")
    assert reruns(drawn, checkout) == expected


def test_changed_comments_docstrings_and_captions_rerun_nothing(drawn, checkout):
    for file in [*checkout.glob("workflow/deltap/**/*.py"), *checkout.glob("scripts/*.py")]:
        text = file.read_text("utf-8")
        file.write_text("# A comment.\n" + text.replace('"""', '"""In other words: ', 1), "utf-8")
    for kind, mark in (("workflow/rules/*.smk", "#"), ("workflow/report/*.rst", "..")):
        for file in checkout.glob(kind):
            file.write_text(f"{file.read_text('utf-8')}\n{mark} A comment.\n", "utf-8")
    assert reruns(drawn, checkout) == set()


def test_a_new_data_set_computes_that_data_set_only(drawn):
    more = with_definition(drawn, "dataset", "more", label="More", format="nq", path="rulers.jsonl")
    output = snakemake(drawn.parent, changed(more, datasets=["capitals", "rulers", "more"]), "-n").stdout
    # Of each stage as many jobs as the new data set has: of two models, and two anchors.
    new = {"questions": 1, "inference": 2, "labels": 2, "probes": 2, "anchors": 2, "delta_p": 4}
    together = {
        "merge": 4,
        "summarise": 1,
        "verdict": 1,
        "samples": 1,
        "extraction": 1,
        "figure_delta_p": 1,
        "figure_auroc": 1,
    }
    assert planned(output) == new | together


@pytest.mark.parametrize(
    "definition",
    [
        {"palette": "colorblind"},
        {"interval": 0.5, "reference_class": "gold"},  # from the anchors, which are there
        {"kind": "groups", "site": None},
    ],
)
def test_a_new_figure_draws_that_figure_only(drawn, definition):
    assert reruns(with_figure(drawn, **definition)) == {"figure_mine"}
