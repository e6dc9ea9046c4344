"""The plan's model of cost, against torch's own counter of FLOPs and against plain numbers."""

import json
from pathlib import Path

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode
from transformers import DynamicCache

import tiny
from deltap.cost import Shape, Tokens, cost, read_shape, shape_of
from deltap.errors import DeltapError
from deltap.plan import asked, planned, report, warnings
from deltap.run import Run
from deltap.settings import ModelEntry, PlanSettings, Source

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


def test_what_is_no_decoder_is_refused_by_name(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"hidden_size": 8}), encoding="utf-8")
    with pytest.raises(DeltapError, match=r"config\.json: no num_hidden_layers, num_attention_heads"):
        read_shape(tmp_path)
