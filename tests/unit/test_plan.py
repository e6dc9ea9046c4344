"""The plan's model of cost, against torch's own counter of FLOPs and against plain numbers."""

import json
import re
from pathlib import Path

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode
from transformers import DynamicCache

import tiny
from deltap.cost import Shape, Tokens, cost, read_shape, shape_of
from deltap.errors import DeltapError
from deltap.interventions.cost import cut_costs
from deltap.plan import asked, planned, report, warnings
from deltap.run import Run
from deltap.settings import InterventionSettings, ModelEntry, PlanSettings, Source

CONFIG = Path(__file__).parents[2] / "config"
TOKENS = Tokens(prefix=30, question=12, answer=4)


def counted(model: torch.nn.Module, tokens: int, before: int, head: bool) -> int:
    """Return the FLOPs that torch counts for ``tokens`` new tokens after ``before`` cached ones."""
    ids = torch.randint(0, 400, (1, before + tokens))
    with torch.inference_mode():
        cache = DynamicCache(config=model.config) if before else None
        if before:
            model.base_model(ids[:, :before], cache=cache, use_cache=True)
        run = model if head else model.base_model
        with FlopCounterMode(display=False) as counter:
            run(ids[:, before:], cache=cache, use_cache=before > 0)
    return counter.get_total_flops()


# What is before the window of a sliding layer is not compared with, so that the plan is an upper bound there.
@pytest.mark.parametrize(
    ("family", "before", "head"),
    [
        *((family, 0, head) for family in ("phi3", "gemma3") for head in (False, True)),
        *((family, before, head) for family in ("qwen3", "qwen2", "llama", "olmo2")
          for before, head in ((0, False), (0, True), (9, False))),
    ],
)  # fmt: skip
def test_a_forward_pass_costs_what_torch_counts(family: str, before: int, head: bool) -> None:
    model = tiny.model(family)
    model.set_attn_implementation("eager")  # the counter does not know the CPU's fused attention
    shape = shape_of(model.config.to_dict(), family)
    assert shape.forward_flops(20, before, head=20 if head else 0) == counted(model, 20, before, head)


@pytest.mark.parametrize("family", ["qwen3", "llama", "phi3"])
def test_parameters_are_those_of_the_model_but_for_its_norms(family: str) -> None:
    model = tiny.model(family)
    weights = sum(p.numel() for name, p in model.named_parameters() if "norm" not in name)
    biases = sum(p.numel() for name, p in model.named_parameters() if name.endswith("bias"))
    assert shape_of(model.config.to_dict(), family).parameters == weights - biases


def test_published_sizes() -> None:
    sizes = {"hidden": 5120, "heads": 64, "kv_heads": 8, "head_dim": 128, "intermediate": 25600, "vocabulary": 151936}
    assert Shape(layers=64, **sizes).parameters == pytest.approx(32.8e9, rel=0.01)


def test_one_pass_per_layer_costs_layers_times_as_much_where_no_prefix_is_shared() -> None:
    shape = shape_of(tiny.model("llama").config.to_dict(), "llama")
    found = cost(shape, 100, 0.5, Tokens(0, 12, 4), "float32", sites=2, positions=3)
    assert found.one_pass_per_layer == pytest.approx(shape.layers * found.knockout)
    # Samples outside the test split are read while they are answered, unless another job answers them.
    assert found.clean == found.knockout
    apart = cost(shape, 100, 0.5, Tokens(0, 12, 4), "float32", sites=2, positions=3, answers_apart=True)
    assert apart.clean == pytest.approx(2 * found.knockout)
    # 100 clean and 50 knockout samples, in chunk and shard.
    assert found.activations == 2 * 150 * shape.layers * shape.hidden * 2 * 3 * 4
    shared = cost(shape, 100, 0.5, TOKENS, "float32", sites=2, positions=3)
    assert shared.one_pass_per_layer > 2 * shape.layers * shared.knockout


def entry(**values: object) -> ModelEntry:
    return ModelEntry.model_validate({"label": "M", "source": Source(path="m"), "kind": "base", **values})


def test_hours_add_up_and_loading_is_warned_of() -> None:
    shape = Shape(36, 4096, 32, 8, 128, 12288, 151936)
    settings = PlanSettings(utilisation=0.5, decode_utilisation=0.5)
    few = planned("m", entry(), shape, [100], 0.35, settings, sites=2, positions=1)
    many = planned("m", entry(), shape, [100_000] * 4, 0.35, settings, sites=2, positions=1, extractors=2)
    (warning,) = warnings([few, many], {"m": "M"})
    assert "fewer shards" in warning
    assert many.loads == 8
    seconds = many.cost.total / (312e12 * 0.5) + 8 * many.cost.weights / 1e9
    assert many.hours["A100 80GB"] == pytest.approx(seconds / 3600)
    text = report([many], {"other": "Not downloaded."}, settings, {"popqa": 100_000}, {"m": "M"})
    assert "| M " in text
    assert "other: not in the plan. Not downloaded." in text


def test_the_language_model_that_is_asked_costs_its_requests() -> None:
    shape = Shape(36, 4096, 32, 8, 128, 12288, 151936)
    settings = PlanSettings(request_prefix_tokens=0, request_tokens=40, reply_tokens=1, decode_utilisation=0.35)
    found = asked("judge", entry(), shape, 1000, 8, settings)
    assert found.cost.answers == 1000 * (shape.forward_flops(40, head=1) + shape.forward_flops(1, 40, head=1))
    assert (found.loads, found.cost.activations, found.cost.knockout) == (8, 0, 0)
    seconds = found.cost.answers / (312e12 * 0.35) + 8 * found.cost.weights / 1e9
    assert found.hours["A100 80GB"] == pytest.approx(seconds / 3600)
    text = report([found], {}, settings, {"popqa": 1000}, {"judge": "J"}, requests=1000)
    assert "at most 1,000 requests" in text


@pytest.mark.parametrize(
    ("extractors", "match", "jobs", "requests"),
    [(["rules"], "llm", 1, 1), (["auto"], "exact_answer", 1, 2), (["rules", "auto", "llm"], "llm", 5, 7)],
)
def test_who_asks_the_language_model_is_counted(extractors: list, match: str, jobs: int, requests: int) -> None:
    config = {
        **{"run": "r", "models": ["qwen3-8b"], "datasets": ["popqa"], "figures": ["groups"]},
        **{"extractors": extractors, "labels": {"match": match}, "llm": {"model": "qwen3-32b"}},
    }
    stage = Run(config, CONFIG).plan_stage()
    llm = stage.llm
    assert llm
    assert stage.answers_apart == (extractors != ["rules"])
    assert (llm.name, llm.jobs, llm.requests) == ("qwen3-32b", jobs, requests)


def test_answers_by_jobs_of_their_own_are_another_load() -> None:
    shape = Shape(36, 4096, 32, 8, 128, 12288, 151936)
    loads = [
        planned(
            *("m", entry(), shape, [100, 100], 0.35, PlanSettings()),
            sites=2,
            positions=1,
            shards=3,
            answers_apart=apart,
        ).loads
        for apart in (False, True)
    ]
    assert loads == [6, 12]


CUTS = InterventionSettings.model_validate(
    {
        "random_tokens": 3,
        "random_mass": 1,
        "dose": [1, 2],
        "windows": {"widths": [1, 4], "samples": 200},
        "heads": {"layers": [0, 18], "samples": 100},
    }
)


def test_other_cuts_cost_their_passes_and_another_load() -> None:
    shape = Shape(36, 4096, 32, 8, 128, 12288, 151936)
    keywords = {"sites": 2, "positions": 1, "shards": 3}
    with_cuts = planned("m", entry(), shape, [1000, 400], 0.35, PlanSettings(), **keywords, interventions=CUTS)
    without = planned("m", entry(), shape, [1000, 400], 0.35, PlanSettings(), **keywords)
    found = {cut.name: cut for cut in with_cuts.cuts}
    one = shape.forward_flops(28, 90)
    assert (found["clean attention"].flops, found["clean attention"].bytes) == (490 * one, 0)
    assert found["answer_queries"].flops == found["dose_2"].flops == 490 * one
    assert found["random_tokens"].flops == pytest.approx(3 * 490 * shape.forward_flops(118))
    assert found["random_tokens"].bytes == 2 * 3 * 490 * 36 * 4096 * 2
    # 200 of the 350 and all of the 140 test samples; a clean pass, then 36, 35, … 1 layers, or 36 … 4.
    assert found["window_1"].samples == 340
    assert found["window_1"].passes == pytest.approx(1 + 37 / 2)
    assert found["window_4"].passes == pytest.approx(1 + (36 * 37 / 2 - 3 * 4 / 2) / 36)
    assert found["window_4"].bytes == 2 * 340 * 33 * 4096 * 2
    assert found["heads"].passes == pytest.approx(1 + 32 * (1 + 0.5))
    assert (found["heads"].samples, found["heads"].bytes) == (200, 2 * 200 * 64 * 4096 * 2)
    assert with_cuts.cost.total - without.cost.total == pytest.approx(sum(cut.flops for cut in with_cuts.cuts))
    assert with_cuts.loads == 2 * without.loads == 12
    assert with_cuts.cost.activations - without.cost.activations == sum(cut.bytes for cut in with_cuts.cuts)
    text = report([with_cuts], {}, PlanSettings(), {"popqa": 1400}, {"m": "M"})
    assert re.search(r"\| M +\| window_4 +\| +340 \|", text)
    assert "Other cuts" not in report([without], {}, PlanSettings(), {"popqa": 1400}, {"m": "M"})


def test_the_clean_states_that_windows_start_from_are_held_on_the_device() -> None:
    shape = Shape(36, 4096, 32, 8, 128, 12288, 151936)
    held = [
        planned(
            *("m", entry(), shape, [1000], 0.35, PlanSettings()), sites=1, positions=1, interventions=cuts
        ).read_bytes
        for cuts in (CUTS, InterventionSettings(windows=None), None)
    ]
    assert held[0] == 8192 * 36 * 4096 * 2
    assert held[0] > held[1] == held[2]


def test_windows_read_at_their_end_are_as_wide_as_they_are() -> None:
    shape = Shape(36, 4096, 32, 8, 128, 12288, 151936)
    settings = InterventionSettings.model_validate({"windows": {"widths": [4], "read_at": "end", "samples": None}})
    (window,) = [cut for cut in cut_costs(shape, [50], TOKENS, "bfloat16", settings) if cut.name == "window_4"]
    assert (window.samples, window.passes) == (50, pytest.approx(1 + 33 * 4 / 36))


def test_the_plan_counts_other_cuts_where_they_are_configured() -> None:
    config = {"run": "r", "models": ["qwen3-8b"], "datasets": ["popqa"], "figures": ["groups"]}
    assert Run(config, CONFIG).plan_stage().interventions is None
    stage = Run({**config, "controls": {}}, CONFIG).plan_stage()
    assert stage.interventions == InterventionSettings()
    assert Run({**config, "controls": {"interventions": None}}, CONFIG).plan_stage().interventions is None


def test_what_is_no_decoder_is_refused_by_name(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"hidden_size": 8}), encoding="utf-8")
    with pytest.raises(DeltapError, match=r"config\.json: no num_hidden_layers, num_attention_heads"):
        read_shape(tmp_path)
