"""Knockout in windows of layers: restarted from the clean hidden states, it equals the same cut in a whole pass."""

import itertools

import pytest
import torch
from accelerate.hooks import AlignDevicesHook, add_hook_to_module

import tiny
from deltap.errors import DeltapError
from deltap.models.check import check_windows
from deltap.models.engine import Engine
from deltap.models.knockout import Cut
from deltap.models.layers import decoder_layers
from deltap.models.prompts import Prompter
from deltap.models.windows import Window
from deltap.settings import PromptSettings

PREFIX = [0, 40, 51, 62, 73, 84, 95]  # longer than the sliding window
SEQUENCES = [
    [*PREFIX, 106, 117, 128, 139, 150, 161],
    [*PREFIX, 41, 52, 63, 74],
    [*PREFIX, 42, 53, 64, 75, 86, 97, 108, 119, 130, 141, 152],
]
KEYS = [[7, 8, 9], [8], [7, 9, 10, 15]]
POSITIONS = [[len(sequence) - 3, len(sequence) - 1] for sequence in SEQUENCES]
LAYERS = 4
WINDOWS = {
    "single layers, read at layer 2": [Window(s, s, 2) for s in range(LAYERS)],
    "three layers, read at layer 3": [Window(s, s + 2, 3) for s in range(LAYERS - 2)],
    "three layers, read at layer 1": [Window(s, s + 2, 1) for s in range(LAYERS - 2)],
    "two layers, read at their end": [Window(s, s + 1, s + 1) for s in range(LAYERS - 1)],
    "heads": [Window(s, s, 3, head) for s in (0, 2) for head in range(4)],
}


def sites(family):
    # The residual stream of Gemma 3n is four streams, which cannot be read.
    return ("attn", "mlp") if family == "gemma3n" else ("attn", "mlp", "resid")


def close(found, expected):
    scale = max(1.0, float(expected.abs().max()))
    torch.testing.assert_close(found, expected, atol=1e-5 * scale, rtol=1e-5)


@pytest.mark.parametrize("family", tiny.ALL_FAMILIES)
def test_a_restarted_window_equals_the_plain_way(family):
    plain, engine = Engine(tiny.model(family), 1), Engine(tiny.model(family), 10_000)
    for windows, shared in zip(WINDOWS.values(), itertools.cycle(([], PREFIX[:3], PREFIX)), strict=False):
        engine.share_prefix(shared)
        found = engine.windows(SEQUENCES, POSITIONS, sites(family), KEYS, windows)
        expected = plain.passes(SEQUENCES, POSITIONS, sites(family), [window.cut(Cut(KEYS)) for window in windows])
        for site in sites(family):
            assert found[site].shape == (len(windows), len(SEQUENCES), 2, 32)
            for number, window in enumerate(windows):
                close(found[site][number], expected[number][site][window.read])


@pytest.mark.parametrize("family", ["qwen3", "gemma3n"])
def test_layers_outside_of_restart_and_reading_are_not_computed(family):
    model = tiny.model(family)
    engine = Engine(model, 10_000)
    run: list[int] = []
    for index, layer in enumerate(decoder_layers(model)):
        layer.mlp.register_forward_hook(lambda module, arguments, output, index=index: run.append(index))
    engine.windows(SEQUENCES, POSITIONS, ("attn",), KEYS, [Window(0, 0, 2), Window(2, 2, 2), Window(3, 3, 2)])
    # What stands before every cut, in every layer; the clean pass up to layer 2; each window from its first layer.
    assert run == [0, 1, 2, 3, 0, 1, 2, 0, 1, 2, 2]


def test_a_window_behind_the_layer_that_is_read_changes_nothing():
    engine = Engine(tiny.model("llama"), 10_000)
    clean = engine.forward(SEQUENCES, POSITIONS, ("attn",))["attn"]
    found = engine.windows(SEQUENCES, POSITIONS, ("attn",), KEYS, [Window(2, 3, 1), Window(1, 2, 1)])["attn"]
    close(found[0], clean[1])
    assert (found[1] - clean[1]).abs().max() > 1e-3


def test_layers_are_as_they_were_whatever_happens():
    model = tiny.model("llama")
    engine = Engine(model, 10_000)
    layers = decoder_layers(model)
    own = layers[0].forward
    layers[1].forward = layers[1].forward  # as accelerate's hooks do
    with pytest.raises(IndexError):
        engine.windows([SEQUENCES[0]], [[99]], ("attn",), KEYS[:1], [Window(2, 2, 3)])
    engine.windows(SEQUENCES, POSITIONS, ("attn",), KEYS, [Window(2, 2, 3)])
    assert [name for name in ("forward",) for layer in layers if name in layer.__dict__] == ["forward"]
    assert layers[0].forward == own
    assert not any(layer._forward_hooks for layer in model.modules())


@pytest.mark.parametrize("family", ["qwen3", "gemma3n"])
def test_layers_whose_weights_come_and_go_are_restarted_too(family):
    """A device map's layers that do not fit lie in host memory, and accelerate's hooks fetch their weights."""
    expected = Engine(tiny.model(family), 10_000).windows(SEQUENCES, POSITIONS, ("attn",), KEYS, [Window(2, 3, 3)])
    model = tiny.model(family)
    for layer in decoder_layers(model)[1:3]:
        weights = {name: tensor.clone() for name, tensor in layer.state_dict().items()}
        add_hook_to_module(layer, AlignDevicesHook("cpu", offload=True, weights_map=weights, place_submodules=True))
    engine = Engine(model, 10_000, torch.device("cpu"))
    close(engine.windows(SEQUENCES, POSITIONS, ("attn",), KEYS, [Window(2, 3, 3)])["attn"], expected["attn"])
    close(engine.windows(SEQUENCES, POSITIONS, ("attn",), KEYS, [Window(2, 3, 3)])["attn"], expected["attn"])


@pytest.mark.parametrize("family", tiny.ALL_FAMILIES)
def test_every_family_passes_the_check_of_restarting(family, tokenizer):
    engine = Engine(tiny.model(family), 4096)
    check_windows(engine, Prompter(tokenizer, "base", PromptSettings()), sites(family))


def test_a_model_whose_layers_hand_on_more_is_refused(tokenizer):
    model = tiny.model("llama")
    seen: dict[str, torch.Tensor] = {}
    first, last = model.model.layers[0], model.model.layers[3]
    # The last layer takes away what the first one left for it, out of sight.
    first.mlp.register_forward_hook(lambda module, arguments, output: seen.update(left=output))
    last.self_attn.register_forward_hook(
        lambda module, arguments, output: (output[0] + seen.pop("left", torch.zeros(1)), *output[1:])
    )
    with pytest.raises(DeltapError, match=r"LlamaForCausalLM.*restarted"):
        check_windows(Engine(model, 4096), Prompter(tokenizer, "base", PromptSettings()), ("attn",))


@pytest.mark.parametrize("family", tiny.ALL_FAMILIES)
def test_attention_is_that_of_the_models_own_eager_attention(family):
    model = tiny.model(family)
    model.set_attn_implementation("eager")
    with torch.inference_mode():
        expected = [
            torch.stack(model(torch.tensor([sequence]), output_attentions=True).attentions)[:, 0].mean(dim=(0, 1))
            for sequence in SEQUENCES
        ]
    engine = Engine(tiny.model(family), 10_000)
    for shared in ([], PREFIX):
        engine.share_prefix(shared)
        firsts = [7, 7, 9]
        for weights, whole, first in zip(engine.attention(SEQUENCES, firsts), expected, firsts, strict=True):
            torch.testing.assert_close(weights.sum(dim=1), torch.ones(len(weights)), atol=1e-5, rtol=0)
            torch.testing.assert_close(weights, whole[first:], atol=1e-5, rtol=0)
