"""The benchmark's contestants give the same numbers, and its rows can be read."""

import random

import pandas as pd
import pytest
import torch
from transformers import AutoTokenizer

import tiny
from benchmarks import inference, peers, report, scaling
from benchmarks.__main__ import chosen_size, parsed
from benchmarks.material import Samples, of_length
from benchmarks.rows import Row
from benchmarks.sizes import SIZES
from benchmarks.sweep import Padded, one_pass_per_layer, ours, work
from benchmarks.timing import Disagree, interleaved, must_agree, ratios
from deltap.models.engine import Engine


@pytest.fixture(scope="module")
def model():
    return tiny.model("llama")


@pytest.fixture
def engine(model):
    return Engine(model, 4096)


PREFIX = list(range(3, 12))


@pytest.fixture
def samples():
    draw = random.Random(0)
    prompts = [PREFIX + [draw.randrange(2, 400) for _ in range(length)] for length in (9, 14, 20)]
    cuts = [sorted(draw.sample(range(10, len(prompt) - 3), 3)) for prompt in prompts]
    sequences = [prompt + [draw.randrange(2, 400) for _ in range(4)] for prompt in prompts]
    ends = [[len(sequence) - 1] for sequence in sequences]
    return Samples(sequences, ends, cuts, [len(prompt) for prompt in prompts])


@pytest.fixture
def contestants(model, engine, samples):
    return {
        "ours": ours(engine, samples, PREFIX),
        "to the end": one_pass_per_layer(model, samples, stop=False),
        "stopping": one_pass_per_layer(model, samples, stop=True),
    }


def test_all_sweeps_give_the_same_and_leave_the_model_as_it_was(model, contestants):
    results = {name: run() for name, run in contestants.items()}
    assert max(must_agree(results).values()) < 1e-5
    assert {value.shape for value in results["ours"].values()} == {(4, 3, 32)}
    assert not torch.equal(results["ours"]["clean/mlp"], results["ours"]["knockout/mlp"])
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in model.modules())
    assert model.config._attn_implementation == "knockout"


@pytest.mark.parametrize("name", peers.NAMES)
def test_a_peer_gives_the_same(model, contestants, samples, tokenizer, name, tmp_path):
    pytest.importorskip(peers.NAMES[name].replace("-", "_"))
    tokenizer.save_pretrained(tmp_path)  # one of them loads it again
    sweep = peers.peer(name, model, AutoTokenizer.from_pretrained(tmp_path), samples)
    assert must_agree({"ours": contestants["ours"](), name: sweep()})[name] < 1e-4


def test_a_mask_cuts_what_knockout_cuts(samples):
    batch = Padded(samples)
    for row, (cut, sequence) in enumerate(zip(samples.cuts, samples.sequences, strict=True)):
        for query in range(len(sequence)):
            for key in range(len(sequence)):
                allowed = key <= query and not (key in cut and query not in cut)
                assert bool(batch.cut[row, 0, query, key]) == allowed


def test_other_numbers_end_the_comparison(contestants):
    right = contestants["ours"]()
    wrong = {name: value + 0.01 for name, value in right.items()}
    with pytest.raises(Disagree, match="theirs and ours differ by"):
        must_agree({"ours": right, "theirs": wrong})
    with pytest.raises(Disagree, match="other shapes"):
        must_agree({"ours": right, "theirs": {name: value[:2] for name, value in right.items()}})
    broken = {name: torch.full_like(value, torch.nan) for name, value in right.items()}
    with pytest.raises(Disagree, match="differ by inf"):
        must_agree({"ours": right, "theirs": broken})


def test_contestants_take_turns(contestants):
    said = []
    seconds = interleaved({"a": lambda: said.append("a"), "b": lambda: said.append("b")}, runs=2)
    assert said == ["a", "b"] * 3
    assert {name: len(values) for name, values in seconds.items()} == {"a": 2, "b": 2}
    assert ratios({"a": [4.0, 9.0], "b": [2.0, 3.0]}, "a", "b") == [2, 3]


def test_samples_can_stand_behind_another_prefix(engine, samples):
    longer = of_length(PREFIX, 20)
    assert longer[:9] == longer[9:18] == PREFIX
    moved = samples.behind(PREFIX, longer)
    assert moved.sequences == [longer + sequence[9:] for sequence in samples.sequences]
    assert moved.prompts == [length + 11 for length in samples.prompts]
    for one, other in ((samples.positions, moved.positions), (samples.cuts, moved.cuts)):
        assert other == [[place + 11 for place in row] for row in one]
    assert work(samples, PREFIX, 4)[False] == 3 * 33 * 4 * 5


def test_the_rows_of_a_sweep(contestants, samples):
    named = dict(zip((inference.OURS, inference.FULL, inference.STOPPING), contestants.values(), strict=True))
    rows = list(inference.sweeps("few-shot", "Sweep", named, work(samples, PREFIX, 4), runs=2))
    assert [len(row.values) for row in rows] == [2, 2, 2]
    assert [row.target for row in rows] == ["none", "at least 20 times faster", "at least 10 times faster"]
    assert not rows[1].reached(19.9)
    assert rows[1].reached(20)


def test_a_missing_library_is_a_skipped_row_with_the_reason(model, samples, tokenizer, monkeypatch):
    monkeypatch.setitem(peers.NAMES, "nnsight", "no-such-package")
    with pytest.raises(peers.Absent, match="no-such-package is not installed; 'make bench' installs it") as absent:
        peers.peer("nnsight", model, tokenizer, samples)
    text = report.table([Row("Sweep", "against nnsight", (), "times", "at least 12", skipped=str(absent.value))])
    assert "| skipped |" in text
    assert "| not measured |" in text
    assert "1. Skipped: no-such-package is not installed" in text


def test_rows_are_written_as_markdown():
    rows = [
        Row("Sweep", "fast", [21.0, 25.0, 19.0], "times", "at least 20", lambda value: value >= 20, note="Why."),
        Row("Sweep", "slow", [4.0], "times", "at least 20", lambda value: value >= 20, note="Why."),
        Row("Memory", "much", [1234.5], "MB", "none"),
    ]
    text = report.page(rows, None, "- a machine", "python -m benchmarks", "`small`", 3)
    table = [[cell.strip() for cell in line.strip("| ").split("|")] for line in text.splitlines() if "|" in line]
    assert ["fast [1]", "21 times", "19 … 25", "3", "at least 20", "yes"] in table
    assert ["slow [1]", "4 times", "4 … 4", "1", "at least 20", "no"] in table
    assert any(line[1] == "1,234 MB" for line in table)
    assert text.index("## Sweep") < text.index("1. Why.") < text.index("## Memory")
    assert text.count("Why.") == 1


def test_flags_change_a_size():
    size = chosen_size(parsed(["--samples", "5", "--layers", "3"]))
    assert (size.samples, size.layers, size.runs) == (5, 3, SIZES["small"].runs)


def test_curves_are_drawn():
    points = [
        (panel, x, name, 0.1 * x + run)
        for panel in scaling.PANELS
        for x in (1, 2)
        for name in (scaling.OURS, scaling.OTHER)
        for run in (1, 2)
    ]
    found = pd.DataFrame(points, columns=["panel", "x", "contestant", "seconds"])
    figure = scaling.draw(found)
    assert [axis.get_xlabel() for axis in figure.axes] == list(scaling.PANELS.values())
    table = report.page([], found, "", "", "", 1)
    cells = [[cell.strip() for cell in line.strip("| ").split("|")] for line in table.splitlines()]
    assert ["samples", scaling.OURS, "2", "1.7", "1.2 … 2.2", "2"] in cells
