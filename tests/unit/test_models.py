"""Model directories, loading, and the check at load time."""

import json
import shutil
from pathlib import Path

import pytest
import torch
import yaml

import tiny
from deltap.errors import DeltapError
from deltap.models.check import check_model
from deltap.models.directory import check_model_directory, revision
from deltap.models.engine import Engine
from deltap.models.knockout import ATTENTION
from deltap.models.layers import refuse_unsupported, site_modules
from deltap.models.load import end_ids, load
from deltap.models.prompts import Prompter
from deltap.settings import ModelEntry, ModelSettings, PromptSettings

SITES = ("attn", "mlp", "resid")
SETTINGS = ModelSettings(kind="base", dtype="float32", device="cpu")


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    return tiny.save(tmp_path_factory.mktemp("model"))


@pytest.fixture
def directory(saved, tmp_path):
    return shutil.copytree(saved, tmp_path / "model")


def test_a_saved_model_loads_and_passes_the_check(saved):
    tokenizer, engine = load(saved, SETTINGS)
    check_model(engine, Prompter(tokenizer, "base", PromptSettings()), SITES)
    assert engine.layers == 4


@pytest.mark.parametrize("family", tiny.FAMILIES)
@pytest.mark.parametrize("kind", ["base", "chat"])
def test_every_family_passes_the_check(tokenizer, family, kind):
    check_model(Engine(tiny.model(family), 4096), Prompter(tokenizer, kind, PromptSettings()), SITES)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("config.json", "no config.json"),
        ("model.safetensors", "no weights"),
        ("tokenizer.json", "no tokenizer"),
    ],
)
def test_an_incomplete_directory_is_refused(directory, name, message):
    (directory / name).unlink()
    with pytest.raises(DeltapError, match=message):
        check_model_directory(directory)


def test_a_missing_directory_and_a_missing_weight_shard_are_refused(directory, tmp_path):
    with pytest.raises(DeltapError, match="no such model directory"):
        check_model_directory(tmp_path / "nothing")
    index = {"weight_map": {"a": "model.safetensors", "b": "model-2.safetensors"}}
    (directory / "model.safetensors.index.json").write_text(json.dumps(index))
    with pytest.raises(DeltapError, match=r"missing model-2\.safetensors"):
        check_model_directory(directory)


def test_pickled_weights_are_never_loaded(directory):
    (directory / "model.safetensors").rename(directory / "pytorch_model.bin")
    with pytest.raises(DeltapError, match="pickled"):
        load(directory, SETTINGS)


def test_damaged_weights_are_refused_by_name(directory):
    (directory / "model.safetensors").write_bytes(b"\x00" * 100)
    with pytest.raises(DeltapError, match="cannot load this model"):
        load(directory, SETTINGS)


def test_the_revision_names_the_weights_and_not_the_place(saved, directory):
    before = revision(directory)
    assert before == revision(saved)
    weights = bytearray((directory / "model.safetensors").read_bytes())
    weights[-1] ^= 1
    (directory / "model.safetensors").write_bytes(weights)
    assert revision(directory) != before


def test_a_device_that_is_not_there_is_refused(saved):
    if torch.cuda.is_available():
        pytest.skip("this machine has a GPU")
    with pytest.raises(DeltapError, match="'cuda' is not available"):
        load(saved, SETTINGS.model_copy(update={"device": "cuda"}))


def test_a_model_that_ignores_the_mask_fails_the_check(tokenizer):
    model = tiny.model("llama")
    model.set_attn_implementation("sdpa")  # as an architecture with an attention function of its own would
    with pytest.raises(DeltapError, match="attention was not cut in layers 0, 1, 2, 3"):
        check_model(Engine(model, 4096), Prompter(tokenizer, "base", PromptSettings()), SITES)


def test_a_model_in_which_one_layer_ignores_the_cut_fails_the_check(tokenizer):
    from copy import copy

    model = tiny.model("llama")
    attention = model.model.layers[2].self_attn
    attention.config = copy(attention.config)
    attention.config._attn_implementation = "sdpa"
    with pytest.raises(DeltapError, match="attention was not cut in layers 2;"):
        check_model(Engine(model, 4096), Prompter(tokenizer, "base", PromptSettings()), SITES)


def test_a_model_that_looks_ahead_fails_the_check(tokenizer):
    model = tiny.model("llama")
    layer = model.model.layers[1].mlp
    inner = layer.forward
    layer.forward = lambda x: inner(x) + 100 * x.mean(dim=1, keepdim=True)
    # What comes later differs under the cut, and in a batch: either comparison notices.
    with pytest.raises(DeltapError, match=r"load check failed.*(before the cut|padded batch)"):
        check_model(Engine(model, 4096), Prompter(tokenizer, "base", PromptSettings()), SITES)


def test_looped_layers_are_refused():
    model = tiny.model("llama")
    model.model.layers[3] = model.model.layers[2]
    with pytest.raises(DeltapError, match="looped"):
        refuse_unsupported(model)


def test_layers_without_attention_logits_are_refused_by_name():
    from transformers import AutoModelForCausalLM, MambaConfig, Qwen3NextConfig

    small = {"vocab_size": 50, "hidden_size": 16, "num_hidden_layers": 2}
    next_ = Qwen3NextConfig(
        **small,
        intermediate_size=16,
        num_attention_heads=2,
        num_key_value_heads=1,
        head_dim=8,
        linear_num_value_heads=2,
        linear_num_key_heads=2,
        linear_key_head_dim=8,
        linear_value_head_dim=8,
        num_experts=2,
        num_experts_per_tok=1,
        moe_intermediate_size=16,
        shared_expert_intermediate_size=16,
        layer_types=["linear_attention", "full_attention"],
    )
    for config in (MambaConfig(**small, state_size=4), next_):
        with pytest.raises(DeltapError, match=config.model_type):
            refuse_unsupported(AutoModelForCausalLM.from_config(config))


def test_sites_are_found_in_every_layer():
    modules = site_modules(tiny.model("qwen3"), ("attn", "mlp", "resid"))
    assert sorted({layer for _, layer in modules}) == [0, 1, 2, 3]
    assert {type(modules[site, 0]).__name__ for site in ("attn", "mlp", "resid")} == {
        "Qwen3Attention",
        "Qwen3MLP",
        "Qwen3DecoderLayer",
    }


def test_answers_end_at_every_end_token_and_at_newlines_where_wanted(saved):
    tokenizer, engine = load(saved, SETTINGS)
    engine.model.generation_config.eos_token_id = 1
    assert end_ids(tokenizer, engine, at_newline=False) == {1}
    with_newlines = end_ids(tokenizer, engine, at_newline=True)
    assert {token for token in range(len(tokenizer)) if "\n" in tokenizer.decode([token])} <= with_newlines
    engine.model.generation_config.eos_token_id = [5, 6]
    assert end_ids(tokenizer, engine, at_newline=False) == {1, 5, 6}


def test_end_tokens_of_the_generation_configuration_are_kept_by_saving(tmp_path):
    for ends, expected in ((7, {1, 7}), ([5, 6], {1, 5, 6}), (None, {1})):
        directory = tiny.save(tmp_path / str(ends))
        written = json.loads((directory / "generation_config.json").read_text())
        written["eos_token_id"] = ends
        (directory / "generation_config.json").write_text(json.dumps(written))
        tokenizer, engine = load(directory, SETTINGS)
        assert end_ids(tokenizer, engine, at_newline=False) == expected


def test_the_check_leaves_the_attention_as_it_was(tokenizer):
    model = tiny.model("gemma3")
    before = model.config._attn_implementation
    check_model(Engine(model, 4096), Prompter(tokenizer, "base", PromptSettings()), SITES)
    assert model.config._attn_implementation == before == ATTENTION


def test_the_papers_models_are_defined_and_no_commit_is_written_down():
    definitions = yaml.safe_load((Path(__file__).parents[2] / "config" / "models.yaml").read_text(encoding="utf-8"))
    entries = [ModelEntry.model_validate(definition) for definition in definitions.values()]
    from_hub = {entry.source.hub: entry.kind for entry in entries if entry.source.hub}
    assert from_hub == {
        "Qwen/Qwen3-8B": "chat",
        "Qwen/Qwen3-32B": "chat",
        "meta-llama/Llama-3.2-1B": "base",
        "meta-llama/Llama-3.2-3B": "base",
        "meta-llama/Meta-Llama-3-8B": "base",
        "meta-llama/Meta-Llama-3-70B": "base",
        "meta-llama/Llama-3.2-3B-Instruct": "chat",
        "meta-llama/Meta-Llama-3-8B-Instruct": "chat",
        "mistralai/Mistral-7B-v0.1": "base",
        "mistralai/Mistral-7B-v0.3": "base",
        "mistralai/Mistral-7B-Instruct-v0.1": "chat",
        "mistralai/Mistral-7B-Instruct-v0.3": "chat",
    }
    assert not any(entry.source.revision or entry.thinking for entry in entries)
