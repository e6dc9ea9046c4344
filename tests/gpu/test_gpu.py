"""On a GPU: the engines that one device allows, bfloat16, and running out of memory. Skipped where there is none."""

import pytest
import torch
from measure import SITES, everything

import tiny
from deltap.models.check import check_model
from deltap.models.load import load
from deltap.models.prompts import Prompter
from deltap.settings import ModelSettings, PromptSettings

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU here")


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models")
    return {family: tiny.save(folder / family, family) for family in tiny.FAMILIES}


def entry(**changes):
    return ModelSettings(**{"kind": "base", "dtype": "float32", "device": "cuda", **changes})


def worst(one, other):
    """Largest difference as a share of the activation's length."""
    names = [name for name in other if not name.endswith("answers")]
    pairs = [(one[name][site].float(), other[name][site].float()) for name in names for site in other[name]]
    return max(float(((a - b).norm(dim=-1) / b.norm(dim=-1)).max()) for a, b in pairs)


@pytest.mark.parametrize("family", tiny.FAMILIES)
def test_a_gpu_gives_the_cpus_activations_and_answers(models, family):
    torch.backends.cuda.matmul.allow_tf32 = False
    (_, gpu), (_, cpu) = load(models[family], entry()), load(models[family], entry(device="cpu"))
    assert gpu.device.type == "cuda"
    ours, theirs = everything(gpu), everything(cpu)
    assert worst(ours, theirs) < 1e-4
    for name in ("whole: answers", "shared prefix: answers"):
        assert ours[name] == theirs[name]


@pytest.mark.parametrize("family", tiny.FAMILIES)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_the_load_check_passes_whatever_kernel_attention_takes(models, family, dtype):
    """Batches from a shared prefix equal single prompts, and a cut mask equals plain attention, in every kernel
    used."""
    tokenizer, engine = load(models[family], entry(dtype=dtype))
    check_model(engine, Prompter(tokenizer, "base", PromptSettings()), SITES)


def test_bfloat16_differs_by_rounding_only(models):
    (_, gpu), (_, cpu) = (load(models["qwen3"], entry(dtype="bfloat16", device=name)) for name in ("cuda", "cpu"))
    assert worst(everything(gpu), everything(cpu)) < 0.05


@pytest.mark.parametrize("family", ["qwen3", "llama"])
def test_layers_on_the_gpu_and_the_host_give_the_same(models, family):
    _, alone = load(models[family], entry())
    _, engine = load(models[family], entry(engine="device_map", max_memory={"0": "120KB", "cpu": "1GB"}))
    assert {"cpu", 0} <= set(engine.model.hf_device_map.values())
    assert worst(everything(engine), everything(alone)) < 1e-4


def test_batches_shrink_when_memory_runs_out(models, caplog):
    _, engine = load(models["qwen3"], entry(batch_tokens=2**22))
    sequences, positions = [list(range(5, 205))] * 4000, [[100]] * 4000
    expected = engine.forward(sequences[:1], positions[:1], ("resid",))["resid"]
    torch.cuda.set_per_process_memory_fraction(2e-3)
    try:
        found = engine.forward(sequences, positions, ("resid",))["resid"]
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0)
    assert "out of memory with a batch of 800000 tokens; going on with 400000" in caplog.text
    torch.testing.assert_close(found[:, -1:], expected, atol=1e-4, rtol=1e-4)


def test_the_log_says_by_which_kernel_attention_is_computed(models, caplog):
    """With a mask too: plain algebra on a GPU is a warning."""
    caplog.set_level("INFO", logger="deltap")
    _, engine = load(models["qwen3"], entry(dtype="bfloat16"))
    engine.clean_and_knockout([list(range(5, 45))], [[30]], ("attn",), [[7, 8]])
    said = [record for record in caplog.records if "attention of" in record.message]
    assert {"knockout on cuda"} <= {record.message.split(":")[0].removeprefix("attention of ") for record in said}
    assert all(record.levelname == "INFO" for record in said)
