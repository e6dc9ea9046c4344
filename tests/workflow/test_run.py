"""A whole run on tiny random models: tables, figure, and that the same run gives the same bytes."""

import json
import math

import matplotlib.colors
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
import running
from safetensors import safe_open

from deltap.anchors import ROUNDING
from deltap.cost import Tokens, cost, read_shape
from deltap.figures.delta_p import draw
from deltap.figures.sources import read_labels
from deltap.settings import DeltaPFigure
from deltap.tables import (
    ANCHORS,
    DELTA_P,
    EXTRACTION,
    EXTRACTION_FIELDS,
    LABELS,
    PROBES,
    SAMPLES,
    SUMMARY,
    read_metadata,
    read_table,
)

pytestmark = pytest.mark.xdist_group("workflow")  # one run serves both files
LAYERS, SITES = 4, ("attn", "resid")
SERIES = [(model, dataset) for model in ("tiny-base", "tiny-chat") for dataset in ("capitals", "rulers")]


def rows(table, **where):
    for name, value in where.items():
        table = table.filter(pc.equal(table[name].cast("string"), value))
    return table


def test_every_table_has_its_schema(finished):
    for name, schema in {
        "delta_p": DELTA_P,
        "delta_p_summary": SUMMARY,
        "anchors": ANCHORS,
        "probes": PROBES,
        "answers": LABELS,
        "samples": SAMPLES,
        "extraction": EXTRACTION,
        "extraction_fields": EXTRACTION_FIELDS,
    }.items():
        assert read_table(finished / f"{name}.parquet", schema).schema.names == schema.names
    assert (finished / "delta_p_summary.csv").read_text().splitlines()[0].replace('"', "") == ",".join(SUMMARY.names)


def test_activations_take_the_room_that_the_plan_states(finished):
    """Half of it in the shards: clean for each sample, knockout for test samples only."""
    answers = read_table(finished / "answers.parquet", LABELS).to_pylist()
    for model, directory in (("tiny-base", "base"), ("tiny-chat", "chat")):
        read = [row for row in answers if row["model"] == model and row["exclusion"] is None]
        cut = [row for row in read if row["split"] == "test"]
        paths = list((finished / "inference" / model).rglob("*.safetensors"))
        positions = len({path.name for path in paths}) // (2 * len(SITES))
        shape = read_shape(finished.parents[1] / directory)
        tokens = Tokens(prefix=10, question=10, answer=4)
        stated = cost(shape, len(read), len(cut) / len(read), tokens, "float32", len(SITES), positions).activations
        assert 2 * sum(_bytes(path) for path in paths) == stated


def _bytes(path):
    """Return how many bytes the values in a file of activations take."""
    with safe_open(path, "np") as file:
        return math.prod(file.get_slice("activations").get_shape()) * 4


@pytest.mark.parametrize(("model", "dataset"), SERIES)
def test_row_counts_follow_from_the_samples(finished, model, dataset):
    answers = rows(read_table(finished / "answers.parquet", LABELS), model=model, dataset=dataset)
    used = [row for row in answers.to_pylist() if row["exclusion"] is None and row["label"] != "abstained"]
    test = [row for row in used if row["split"] == "test"]
    assert len(answers) == len(running.SUBJECTS)
    anchors = rows(read_table(finished / "anchors.parquet", ANCHORS), model=model, dataset=dataset)
    assert len(anchors) == len(test) * LAYERS * len(SITES)
    delta_p = rows(read_table(finished / "delta_p.parquet", DELTA_P), model=model, dataset=dataset)
    assert len(delta_p) == 2 * len(anchors)  # two groupings
    probes = rows(read_table(finished / "probes.parquet", PROBES), model=model, dataset=dataset)
    assert len(probes) == 3 * LAYERS * len(SITES)
    train = rows(probes, split="train", layer="0", site="attn").to_pylist()[0]
    assert train["n_truthful"] + train["n_hallucinated"] == sum(row["split"] == "train" for row in used)
    summary = rows(read_table(finished / "delta_p_summary.parquet", SUMMARY), model=model, dataset=dataset)
    assert len(summary) == 2 * 2 * LAYERS * len(SITES)
    for layer in range(LAYERS):
        groups = rows(summary, layer=str(layer), site="attn", grouping="per_layer")
        assert sum(groups["n"].to_pylist()) == len(test)


def test_tables_agree_with_each_other(finished):
    for row in read_table(finished / "delta_p.parquet", DELTA_P).to_pylist()[::17]:
        assert (row["predicted"] == "truthful") == (row["p_clean"] >= 0.5)
        change = 100 * (row["p_knockout"] - row["p_clean"])
        assert row["delta_p"] == pytest.approx(change if row["predicted"] == "truthful" else -change, abs=1e-3)
        if row["grouping"] == "per_layer":
            flips = (row["p_clean"] >= 0.5) != (row["p_knockout"] >= 0.5)
            assert row["anchor"] == ("q_anchored" if flips else "a_anchored")


def test_what_was_cut_and_read_can_be_read_by_a_person(finished):
    for row in read_table(finished / "answers.parquet", LABELS).to_pylist():
        for span in row["exact_question"]:
            assert row["question"][span["start"] : span["end"]] == span["text"]
        if row["dataset"] == "capitals":
            assert row["exact_question_source"] == "fields"
            assert {"capital", row["question"].removesuffix("?").split()[-1]} <= {
                s["text"] for s in row["exact_question"]
            }
        if row["exclusion"] is None:
            span = row["exact_answer"]
            assert row["answer"][span["start"] : span["end"]] == span["text"]
            assert len(row["exact_answer_tokens"]) == len(row["exact_answer_token_text"])
            assert min(row["exact_answer_tokens"]) >= row["prompt_tokens"]
            assert 0 < min(row["exact_question_tokens"]) <= max(row["exact_question_tokens"]) < row["prompt_tokens"]


def test_samples_are_the_answers_and_say_which_of_them_probes_see(finished):
    answers = read_table(finished / "answers.parquet", LABELS).to_pylist()
    samples = read_table(finished / "samples.parquet", SAMPLES).to_pylist()
    assert len(samples) == len(answers) == len(SERIES) * len(running.SUBJECTS)
    for answer, sample in zip(answers, samples, strict=True):
        assert all(
            sample[name] == answer[name] for name in ("model", "dataset", "question_id", "split", "label", "echo")
        )
        assert sample["used_for_probes"] == (answer["exclusion"] is None and answer["label"] != "abstained")
        assert (sample["exclusion"] is None) == sample["used_for_probes"]
        assert sample["answer_tokens"] == len(answer["answer_ids"])
        assert sample["exact_question_tokens"] == len(answer["exact_question_tokens"])
        assert sample["label_by_exact_answer"] == answer["label"]
        assert sample["label_by_containment"] == answer["label_by_containment"]
        popularity = 10.0 * int(answer["question_id"]) if answer["dataset"] == "capitals" else None
        assert sample["popularity"] == popularity
    for model, dataset in SERIES:
        used = sum(s["used_for_probes"] for s in samples if (s["model"], s["dataset"]) == (model, dataset))
        probes = rows(
            read_table(finished / "probes.parquet", PROBES), model=model, dataset=dataset, layer="0", site="attn"
        )
        assert used == sum(probes["n_truthful"].to_pylist()) + sum(probes["n_hallucinated"].to_pylist())


def test_the_overview_can_be_read_by_a_person(finished):
    answers = read_table(finished / "answers.parquet", LABELS)
    lines = (finished / "samples.md").read_text(encoding="utf-8").splitlines()
    for model, dataset, *names in (
        ("tiny-base", "capitals", "Tiny (base)", "Capitals"),
        ("tiny-chat", "rulers", "Tiny (chat)", "Rulers"),
    ):
        labels = rows(answers, model=model, dataset=dataset)["label"].to_pylist()
        counts = [labels.count(name) for name in ("truthful", "hallucinated", "abstained")]
        accuracy = f"{counts[0] / (counts[0] + counts[1]):.1%}"
        first = next(line for line in lines if all(name in line for name in names))
        assert [cell.strip() for cell in first.split("|")[3:8]] == [*map(str, [len(labels), *counts]), accuracy]
    assert any("Capitals" in line and "middle" in line for line in lines)
    assert not any("Rulers" in line and "middle" in line for line in lines)


def test_the_report_of_exact_tokens_agrees_with_the_answers(finished):
    answers = read_table(finished / "answers.parquet", LABELS)
    for row in read_table(finished / "extraction.parquet", EXTRACTION).to_pylist():
        texts = rows(answers, model=row["model"], dataset=row["dataset"]).to_pylist()
        texts = [text for text in texts if row["part"] == "question" or text["answer"]]
        sources = [text[f"exact_{row['part']}_source"] for text in texts]
        found = [source for source in sources if source and row["source"] in ("any", source)]
        assert (row["texts"], row["found"]) == (len(texts), len(found))
    # The fields of the one data set that has them, against rules that do not see them.
    compared = read_table(finished / "extraction_fields.parquet", EXTRACTION_FIELDS).to_pylist()
    assert [row["dataset"] for row in compared] == ["capitals"] * len(running.SUBJECTS)
    agreement = read_metadata(finished / "extraction_fields.parquet")["agreement"]["capitals"]
    assert agreement["questions"] == len(running.SUBJECTS)
    assert f"{agreement['f1']:.3f}" in (finished / "extraction.md").read_text(encoding="utf-8")


def test_knockout_is_computed_for_test_samples_only(finished):
    for model, dataset in SERIES:
        folder = finished / "inference" / model / dataset / "auto" / "0"
        answers = pq.read_table(folder / "answers.parquet").to_pylist()
        used = [row for row in answers if row["exclusion"] is None]
        for name, wanted in (("clean", used), ("knockout", [row for row in used if row["split"] == "test"])):
            with safe_open(folder / f"{name}.attn.exact_answer_last.safetensors", "pt") as file:
                assert file.get_slice("activations").get_shape() == [LAYERS, len(wanted), 32]
            assert sorted(row[f"{name}_row"] for row in wanted) == list(range(len(wanted)))


def test_files_say_what_made_them(finished):
    made_by = read_metadata(finished / "delta_p.parquet")["provenance"]
    assert made_by["code"]
    assert made_by["versions"]["torch"]
    inputs = json.dumps(made_by["inputs"])
    assert '"dtype": "float32"' in inputs
    assert "model_revision" in inputs


def test_the_figure_reads_back_as_specified(finished):
    table = finished / "delta_p_summary.parquet"
    summary = rows(read_table(table, SUMMARY), site="attn", grouping="per_layer")
    figure = draw(summary.to_pandas(), DeltaPFigure(), read_labels([table]))
    panels = figure.axes
    assert [panel.get_title() for panel in panels] == ["Tiny (base)", "Tiny (chat)"]
    assert {panel.get_xlabel() for panel in panels} == {"Layer"}
    assert panels[0].get_ylabel() == "ΔP"
    assert [round(tick) for tick in panels[0].get_xticks()] == [0, 1, 2, 3]
    ticks = [round(tick) for tick in panels[0].get_yticks()]
    # Random models may go beyond 20; the axis then follows the data.
    assert ticks == list(range(-100, ticks[-1] + 1, 20))
    assert ticks[-1] >= 20
    legend = figure.legends[0]
    names = [f"{anchor}-Anchored ({name})" for name in ("Capitals", "Rulers") for anchor in "QA"]
    assert [text.get_text() for text in legend.get_texts()] == names
    colours = [matplotlib.colors.to_hex(line.get_color()) for line in legend.get_lines()]
    assert colours == [matplotlib.colors.to_hex(f"C{index}") for index in range(4)]
    assert [line.get_linestyle() for line in legend.get_lines()] == ["-", "--", "-", "--"]


def test_figures_are_there_in_every_format(finished):
    assert (finished / "figures" / "delta_p.png").read_bytes().startswith(b"\x89PNG")
    assert (finished / "figures" / "delta_p.pdf").read_bytes().startswith(b"%PDF")
    assert "ΔP" in (finished / "figures" / "delta_p.svg").read_text(encoding="utf-8")


def test_the_run_says_where_the_results_are(finished):
    assert "results/mine/figures" in (finished.parents[1] / "output.txt").read_text()


def test_no_temporary_file_is_left(finished):
    assert not [path for path in finished.parents[1].rglob("*.tmp*") if ".snakemake" not in path.parts]


def test_the_same_run_gives_the_same_bytes(configfile, finished, tmp_path):
    again = running.changed(configfile, models=["tiny-base"], datasets=["rulers"])
    running.snakemake(tmp_path, again, "tables", "--forceall")
    for part in (
        "questions/rulers.parquet",
        "inference/tiny-base/rulers/auto/0/clean.attn.exact_answer_last.safetensors",
        "inference/tiny-base/rulers/auto/0/knockout.resid.exact_answer_last.safetensors",
        "labels/tiny-base/rulers/auto.parquet",
        "probes/tiny-base/rulers/auto.safetensors",
        "anchors/tiny-base/rulers/auto.parquet",
        "delta_p/tiny-base/rulers/auto/q_anchored.parquet",
    ):
        assert (tmp_path / "results" / "mine" / part).read_bytes() == (finished / part).read_bytes(), part


def test_shards_change_no_number_beyond_rounding(configfile, finished, tmp_path):
    sharded = running.changed(
        configfile,
        models=["tiny-base"],
        datasets=["rulers"],
        inference={"sites": ["attn", "resid"], "positions": ["exact_answer_last"], "shards": 3, "chunk_questions": 16},
    )
    running.snakemake(tmp_path, sharded, "results/mine/anchors.parquet")
    key = ["question_id", "site", "layer"]
    whole = rows(read_table(finished / "anchors.parquet", ANCHORS), model="tiny-base", dataset="rulers")
    parts = read_table(tmp_path / "results" / "mine" / "anchors.parquet", ANCHORS)
    a, b = (
        table.select([*key, "p_clean", "p_knockout"]).to_pandas().astype({"site": str}).set_index(key).sort_index()
        for table in (whole, parts)
    )
    assert len(a) == len(b) > 0
    assert abs(a - b).max().max() < ROUNDING["F32"]
    # Nor a verdict, but where the table says that rounding may decide.
    near = parts.select([*key, "near_threshold"]).to_pandas().astype({"site": str}).set_index(key).sort_index()
    changed = ((a >= 0.5) != (b >= 0.5)).any(axis=1)
    assert not (changed & ~near["near_threshold"]).any()
