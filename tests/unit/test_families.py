"""Every model family through the whole path: what is measured is right, and what cannot be right is refused.

The reference runs one sequence at a time through transformers' own eager attention, with masks made here by hand from
the definition of causality, window and knockout; it shares no code with the engine.
"""

from contextlib import ExitStack

import pytest
import torch
import transformers
from asking import inference_job
from transformers import AutoModelForCausalLM

import tiny
from deltap.errors import DeltapError
from deltap.models.check import check_model
from deltap.models.engine import Engine
from deltap.models.knockout import ATTENTION
from deltap.models.layers import decoder_layers, refuse_unsupported
from deltap.models.load import end_ids, load
from deltap.models.prompts import Prompter
from deltap.settings import InferenceSettings, InferenceStage, ModelSettings, PromptSettings

SITES = ("attn", "mlp", "resid")
PREFIX = [0, 40, 51, 62, 73, 84, 95]  # longer than the window
SEQUENCES = [
    [*PREFIX, 106, 117, 128, 139, 150, 161],
    [*PREFIX, 41, 52, 63, 74],
    [*PREFIX, 42, 53, 64, 75, 86, 97, 108, 119, 130, 141, 152],
]
CUT = [[7, 8, 9], [8], [7, 9, 10, 15]]  # in one piece, one token, in several pieces
POSITIONS = [[len(sequence) - 3, len(sequence) - 1] for sequence in SEQUENCES]
FAMILIES = [family for family in tiny.ALL_FAMILIES if family != "gemma3n"]
WINDOWED = [family for family in FAMILIES if getattr(tiny.ALL_FAMILIES[family], "sliding_window", None)]


@pytest.fixture(scope="module", params=FAMILIES)
def model(request):
    return tiny.model(request.param)


def windows(config):
    """Return each layer's window, None where it sees everything before it."""
    window = getattr(config, "sliding_window", None)
    types = getattr(config, "layer_types", None) or ["sliding_attention"] * config.num_hidden_layers
    return [window if kind == "sliding_attention" else None for kind in types]


def reference(model, ids, cut=(), last_layer=-1):
    """Return activations by site, shape (layers, tokens, hidden), with edges cut in layers 0 … last_layer."""
    found = {site: [None] * model.config.num_hidden_layers for site in SITES}
    n = len(ids)

    def keep(site, layer):
        def read(module, arguments, output):
            found[site][layer] = (output if isinstance(output, torch.Tensor) else output[0])[0]

        return read

    def mask(layer, window):
        def seen(query, key):
            inside = key <= query and (window is None or query - key < window)
            severed = layer <= last_layer and key in cut and query not in cut
            return inside and not severed

        logits = torch.tensor([[[[0.0 if seen(i, j) else -torch.inf for j in range(n)] for i in range(n)]]])
        return lambda module, arguments, keywords: (arguments, {**keywords, "attention_mask": logits})

    used = model.config._attn_implementation
    model.set_attn_implementation("eager")
    try:
        with ExitStack() as stack, torch.inference_mode():
            for index, (layer, window) in enumerate(zip(model.model.layers, windows(model.config), strict=True)):
                handles = [
                    layer.self_attn.register_forward_pre_hook(mask(index, window), with_kwargs=True),
                    layer.self_attn.register_forward_hook(keep("attn", index)),
                    layer.mlp.register_forward_hook(keep("mlp", index)),
                    layer.register_forward_hook(keep("resid", index)),
                ]
                for handle in handles:
                    stack.callback(handle.remove)
            model(torch.tensor([ids]))
    finally:
        model.set_attn_implementation(used)
    return {site: torch.stack(states) for site, states in found.items()}


def close(found, expected):
    scale = max(1.0, float(expected.abs().max()))
    torch.testing.assert_close(found, expected, atol=2e-5 * scale, rtol=1e-5)


@pytest.mark.parametrize("family", WINDOWED)
def test_the_window_is_shorter_than_the_prompt_and_matters(family):
    model = tiny.model(family)
    narrow = Engine(model, 10_000).forward(SEQUENCES[:1], POSITIONS[:1], ("resid",))["resid"]
    config = tiny.ALL_FAMILIES[family]
    wide = type(config)(**{**config.to_dict(), "sliding_window": 1000})
    other = AutoModelForCausalLM.from_config(wide, attn_implementation=ATTENTION).eval()
    other.load_state_dict(model.state_dict())
    all_seen = Engine(other, 10_000).forward(SEQUENCES[:1], POSITIONS[:1], ("resid",))["resid"]
    assert (narrow - all_seen)[-1].abs().max() > 1e-2


def test_clean_activations_are_those_of_the_models_own_attention(model):
    found = Engine(model, 10_000).forward(SEQUENCES, POSITIONS, SITES)
    for index, sequence in enumerate(SEQUENCES):
        expected = reference(model, sequence)
        for site in SITES:
            close(found[site][:, index], expected[site][:, POSITIONS[index]])


def test_one_pass_equals_one_plain_pass_for_every_layer(model):
    engine = Engine(model, 10_000)
    found = engine.forward(SEQUENCES, POSITIONS, SITES, CUT)
    for k in range(engine.layers):
        plain = engine.forward(SEQUENCES, POSITIONS, SITES, CUT, last_layer=k)
        for index, sequence in enumerate(SEQUENCES):
            expected = reference(model, sequence, CUT[index], last_layer=k)
            for site in SITES:
                close(found[site][k, index], expected[site][k, POSITIONS[index]])
                # Above layer k nothing is cut, so the plain pass differs there; up to k it is the same pass.
                close(plain[site][:, index], expected[site][:, POSITIONS[index]])


def test_a_mask_that_cuts_nothing_equals_no_mask(model):
    engine = Engine(model, 10_000)
    clean = engine.forward(SEQUENCES, POSITIONS, SITES)
    nothing = engine.forward(SEQUENCES, POSITIONS, SITES, [[], [], []])
    for site in SITES:
        close(nothing[site], clean[site])


def test_positions_before_the_cut_do_not_change_and_the_last_does(model):
    engine = Engine(model, 10_000)
    for sequence, cut in zip(SEQUENCES, CUT, strict=True):
        positions = [[*range(cut[0]), len(sequence) - 1]]
        clean = engine.forward([sequence], positions, SITES)
        knockout = engine.forward([sequence], positions, SITES, [cut])
        for site in SITES:
            close(knockout[site][:, :, :-1], clean[site][:, :, :-1])
        assert (knockout["resid"] - clean["resid"])[-1, 0, -1].abs().max() > 1e-4


@pytest.mark.parametrize("budget", [1, 20, 10_000])
@pytest.mark.parametrize("cut", [None, CUT], ids=["clean", "knockout"])
def test_batches_and_the_shared_prefix_change_nothing(model, budget, cut):
    alone = [
        Engine(model, 1).forward([sequence], [positions], SITES, [tokens] if tokens is not None else None)
        for sequence, positions, tokens in zip(SEQUENCES, POSITIONS, cut or [None] * 3, strict=True)
    ]
    engine = Engine(model, budget)
    for prefix in ([], PREFIX[:3], PREFIX):
        engine.share_prefix(prefix)
        together = engine.forward(SEQUENCES, POSITIONS, SITES, cut)
        for site in SITES:
            close(together[site], torch.cat([one[site] for one in alone], dim=1))


@pytest.mark.parametrize("budget", [1, 20, 10_000])
def test_both_passes_from_a_common_beginning_equal_each_by_itself(model, budget):
    plain = Engine(model, 1)
    clean, knockout = plain.forward(SEQUENCES, POSITIONS, SITES), plain.forward(SEQUENCES, POSITIONS, SITES, CUT)
    engine = Engine(model, budget)
    for prefix in ([], PREFIX[:3], PREFIX):
        engine.share_prefix(prefix)
        both = engine.clean_and_knockout(SEQUENCES, POSITIONS, SITES, CUT)
        for found, expected in zip(both, (clean, knockout), strict=True):
            for site in SITES:
                close(found[site], expected[site])


def test_answers_are_those_of_repeated_argmax_in_batches_and_from_the_prefix(model):
    new, end = 8, 399

    def plain(prompt):
        answer: list[int] = []
        while len(answer) < new:
            with torch.inference_mode():
                token = int(model(torch.tensor([prompt + answer])).logits[0, -1].argmax())
            if token == end:
                break
            answer.append(token)
        return answer

    expected = [plain(prompt) for prompt in SEQUENCES]
    engine = Engine(model, 10_000)
    for prefix in ([], PREFIX[:3], PREFIX):
        engine.share_prefix(prefix)
        assert engine.generate(SEQUENCES, {end}, new) == expected
    assert [engine.generate([prompt], {end}, new)[0] for prompt in SEQUENCES] == expected


def test_activations_that_come_up_with_answers_are_those_of_a_pass(model):
    new, end = 8, 399
    answers = Engine(model, 1).generate(SEQUENCES, {end}, new)
    whole = [prompt + answer for prompt, answer in zip(SEQUENCES, answers, strict=True)]
    # The prompt's last token, the answer's first and its last that was fed again.
    positions = [[len(prompt) - 1, len(prompt), len(text) - 2] for prompt, text in zip(SEQUENCES, whole, strict=True)]
    expected = Engine(model, 1).forward(whole, positions, SITES)
    engine = Engine(model, 10_000)
    for prefix in ([], PREFIX[:3], PREFIX):
        engine.share_prefix(prefix)
        said, found = engine.generate_and_read(SEQUENCES, {end}, new, SITES, lambda index, ids: positions[index])
        assert said == answers
        for index in range(len(SEQUENCES)):
            for site in SITES:
                close(found[index][site], expected[site][:, index : index + 1])


def test_what_did_not_come_up_with_an_answer_is_not_invented(model):
    """The last token of an answer that was cut off is never fed, and a prompt is read at its end only."""
    engine = Engine(model, 10_000)
    (answer,), _ = engine.generate_and_read(SEQUENCES[:1], {399}, 3, SITES, None)
    end = len(SEQUENCES[0]) + len(answer)
    for positions in ([end - 1], [end - 2, end - 1], [len(SEQUENCES[0]) - 2], []):
        _, found = engine.generate_and_read(SEQUENCES[:1], {399}, 3, SITES, lambda index, ids, p=positions: p)
        assert not found


@pytest.mark.parametrize("window", [tiny.WINDOW, 19, 20, 100])
@pytest.mark.parametrize("family", ["mistral", "gemma3"])
def test_only_texts_longer_than_the_window_are_not_padded_together(family, window):
    config = type(tiny.ALL_FAMILIES[family])(**{**tiny.ALL_FAMILIES[family].to_dict(), "sliding_window": window})
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(config, attn_implementation=ATTENTION).eval()
    new = 2  # the longest text is 18 + 2 tokens
    alone = [Engine(model, 1).generate([prompt], {399}, new)[0] for prompt in SEQUENCES]
    engine = Engine(model, 10_000)
    engine.share_prefix(PREFIX[:3])
    batches: list[int] = []
    assert engine.generate(SEQUENCES, {399}, new, batches.append) == alone
    assert batches == ([3] if window >= 20 else [1, 1, 1])


@pytest.mark.parametrize("family", FAMILIES)
def test_a_saved_model_loads_and_passes_the_check_for_base_and_chat_prompts(family, tmp_path):
    directory = tiny.save(tmp_path, family)
    tokenizer, engine = load(directory, ModelSettings(kind="base", dtype="float32", device="cpu"))
    expected = Engine(tiny.model(family), 10_000).forward(SEQUENCES, POSITIONS, SITES)
    for site, states in engine.forward(SEQUENCES, POSITIONS, SITES).items():
        close(states, expected[site])
    for kind in ("base", "chat"):
        check_model(engine, Prompter(tokenizer, kind, PromptSettings()), SITES)


@pytest.mark.parametrize("kind", ["base", "chat"])
@pytest.mark.parametrize("family", FAMILIES)
def test_the_inference_job_reads_what_the_reference_reads(family, kind, tmp_path, monkeypatch):
    """From questions to activations: the answer's own tokens, clean and with the exact question cut."""
    directory = tiny.save(tmp_path, family)
    entry = ModelSettings(kind=kind, dtype="float32", device="cpu")
    tokenizer, engine = load(directory, entry)
    sites, positions = SITES, ("last", "exact_answer_last")
    stage = InferenceStage(
        model="m",
        dataset="d",
        extractor="auto",
        entry=entry,
        prompt=PromptSettings(),
        inference=InferenceSettings(sites=sites, positions=positions),
        bad_rows=0,
    )
    ends = end_ids(tokenizer, engine, at_newline=kind == "base")
    job = inference_job(engine, tokenizer, stage, ends, tmp_path / "store")
    names = ("Arland", "the old Kingdom of Belania", "Corford")
    said = [tokenizer.encode(text) for text in (" Paris, a city in Europe.", " the old man", " It is France.")]
    monkeypatch.setattr(
        engine, "generate_and_read", lambda *arguments: (said, {})
    )  # a random model says nothing that has a core
    questions = [
        {
            "question_id": name,
            "question": f"What is the capital of {name}?",
            "subject": name,
            "property": "capital",
            "gold_answers": ["x"],
            "split": "test",
        }
        for name in names
    ]
    tensors, rows = job.chunk(job.prepare(questions), lambda done: None)
    model = tiny.model(family)
    assert [row["exclusion"] for row in rows] == [None] * len(names)
    for row in rows:
        ids = job.model.prompter(row["question"]).ids + row["answer_ids"]
        cut = row["exact_question_tokens"]
        places = [len(ids) - 1, row["exact_answer_tokens"][-1]]
        clean = reference(model, ids)
        knockout = reference(model, ids, cut, last_layer=engine.layers - 1)
        for site in sites:
            for position, place in zip(positions, places, strict=True):
                close(tensors[f"clean/{site}/{position}"][:, row["clean_row"]], clean[site][:, place])
                close(tensors[f"knockout/{site}/{position}"][:, row["knockout_row"]], knockout[site][:, place])


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("family", ["qwen3", "llama", "mistral", "gemma2", "gemma3", "phi3"])
def test_rounding_in_half_precision_passes_the_check(tokenizer, family, dtype):
    engine = Engine(tiny.model(family).to(dtype), 4096)
    check_model(engine, Prompter(tokenizer, "base", PromptSettings()), SITES)


def test_shared_keys_between_layers_pass_but_a_residual_stream_in_several_parts_is_refused(tokenizer):
    model = tiny.model("gemma3n")  # its upper layers use the keys of lower ones; its residual stream is four streams
    prompter = Prompter(tokenizer, "base", PromptSettings())
    check_model(Engine(model, 4096), prompter, ("attn", "mlp"))
    with pytest.raises(DeltapError, match="site 'resid' of layer 0 cannot be read"):
        check_model(Engine(model, 4096), prompter, SITES)


def test_images_do_not_hide_the_language_model(tokenizer):
    # As many layers in the vision tower as in the language model.
    vision = {"hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 4, "num_attention_heads": 2}
    config = transformers.Gemma3Config(
        text_config=tiny.ALL_FAMILIES["gemma3"].to_dict(),
        vision_config={**vision, "image_size": 8, "patch_size": 4},
        mm_tokens_per_image=4,
    )
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(config, attn_implementation=ATTENTION).eval()
    assert {type(layer).__name__ for layer in decoder_layers(model)} == {"Gemma3DecoderLayer"}
    refuse_unsupported(model)
    check_model(Engine(model, 4096), Prompter(tokenizer, "base", PromptSettings()), SITES)


# What cannot be right.

SMALL = {"vocab_size": 400, "hidden_size": 32, "num_hidden_layers": 2, "pad_token_id": 1}
HEADS = {"num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 32}
MAMBA = {"mamba_n_heads": 4, "mamba_d_head": 16, "mamba_n_groups": 1, "mamba_d_state": 4}
LINEAR = {
    "linear_num_value_heads": 2,
    "linear_num_key_heads": 2,
    "linear_key_head_dim": 8,
    "linear_value_head_dim": 8,
    "layer_types": ["linear_attention", "full_attention"],
}
EXPERTS = {
    "num_experts": 2,
    "num_experts_per_tok": 1,
    "moe_intermediate_size": 16,
    "shared_expert_intermediate_size": 16,
}
WITHOUT_LOGITS = {
    "Qwen3NextConfig": {**SMALL, **HEADS, **LINEAR, **EXPERTS, "head_dim": 8},
    "Qwen3_5TextConfig": {**SMALL, **HEADS, **LINEAR, "head_dim": 8},
    "OlmoHybridConfig": {**SMALL, **HEADS, **LINEAR},
    "KimiLinearConfig": {**SMALL, **HEADS},
    "MiniMaxConfig": {**SMALL, **HEADS, "layer_types": LINEAR["layer_types"], "num_local_experts": 2},
    "MambaConfig": {**SMALL, "state_size": 4},
    "Mamba2Config": {**SMALL, "state_size": 4, "num_heads": 4, "head_dim": 16, "n_groups": 1},
    "FalconMambaConfig": {**SMALL, "state_size": 4},
    "JambaConfig": {**SMALL, **HEADS, "attn_layer_period": 2, "attn_layer_offset": 1, "num_experts": 2},
    "BambaConfig": {**SMALL, **HEADS, **MAMBA, "attn_layer_indices": [1]},
    "FalconH1Config": {**SMALL, **HEADS, **MAMBA, "mamba_d_ssm": 64},
    "ZambaConfig": {
        **{**SMALL, "num_hidden_layers": 3},
        **HEADS,
        "layers_block_type": ["mamba", "hybrid", "hybrid"],
        "mamba_d_state": 4,
    },
    "NemotronHConfig": {**SMALL, **HEADS, "layers_block_type": ["mamba", "attention"], "n_groups": 1},
    "GraniteMoeHybridConfig": {
        **SMALL,
        **HEADS,
        **MAMBA,
        "layer_types": ["mamba", "attention"],
        "num_local_experts": 2,
        "num_experts_per_tok": 1,
    },
    "Lfm2Config": {**SMALL, **HEADS, "layer_types": ["conv", "full_attention"]},
    "RecurrentGemmaConfig": {**SMALL, **HEADS, "lru_width": 32, "block_types": ["recurrent", "attention"]},
    "RwkvConfig": {**SMALL, "attention_hidden_size": 32},
    "xLSTMConfig": {**SMALL, "num_heads": 4},
}


@pytest.mark.parametrize("name", WITHOUT_LOGITS)
def test_layers_without_attention_logits_are_refused_by_name(name):
    config = getattr(transformers, name)(**WITHOUT_LOGITS[name])
    made = AutoModelForCausalLM.from_config(config)
    with pytest.raises(DeltapError, match=f"{config.model_type}.*(no attention logits)"):
        refuse_unsupported(made)


def test_encoder_decoders_are_refused_by_name(tmp_path, tokenizer):
    config = transformers.T5Config(vocab_size=400, d_model=16, d_kv=4, d_ff=16, num_layers=1, num_heads=2)
    transformers.T5ForConditionalGeneration(config).save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    with pytest.raises(DeltapError, match=r"t5.*encoder-decoder"):
        load(tmp_path, ModelSettings(kind="base", dtype="float32", device="cpu"))


@pytest.mark.parametrize("family", ["gemma3", "llama"])
def test_masks_in_both_directions_are_refused_by_name(family):
    key = {"gemma3": {"use_bidirectional_attention": True}, "llama": {"is_causal": False}}[family]
    config = type(tiny.ALL_FAMILIES[family])(**{**tiny.ALL_FAMILIES[family].to_dict(), **key})
    with pytest.raises(DeltapError, match=f"{config.model_type}.*bidirectional"):
        refuse_unsupported(AutoModelForCausalLM.from_config(config))


def test_an_encoder_behind_a_language_model_head_fails_the_check(tokenizer):
    config = transformers.BertConfig(**SMALL, num_attention_heads=4, intermediate_size=32, max_position_embeddings=256)
    model = AutoModelForCausalLM.from_config(config, attn_implementation=ATTENTION)
    with pytest.raises(
        DeltapError, match="BertSelfAttention makes no boolean attention mask, as if it saw the text in both"
    ):
        check_model(Engine(model, 4096), Prompter(tokenizer, "base", PromptSettings()), ("attn",))


def test_a_prompt_seen_in_both_directions_fails_the_check(tokenizer):
    """A prefix-LM: causal for what is generated, not for what it is given."""
    model = tiny.model("llama")
    inner = model.model.forward

    def forward(input_ids, **keywords):
        mask, cache = keywords.get("attention_mask"), keywords.get("cache")
        if mask is None and (cache is None or cache.get_seq_length() == 0):
            mask = torch.ones(len(input_ids), 1, input_ids.shape[1], input_ids.shape[1], dtype=torch.bool)
        return inner(input_ids, **{**keywords, "attention_mask": mask})

    model.model.forward = forward
    with pytest.raises(DeltapError, match="the load check failed"):
        check_model(Engine(model, 4096), Prompter(tokenizer, "base", PromptSettings()), SITES)


def test_layers_that_run_several_times_are_refused(tokenizer):
    model = tiny.model("llama")
    inner = model.model.forward

    def twice(input_ids, **keywords):
        inner(input_ids, **keywords)
        return inner(input_ids, **keywords)

    model.model.forward = twice
    with pytest.raises(DeltapError, match="layers are looped"):
        check_model(Engine(model, 4096), Prompter(tokenizer, "base", PromptSettings()), SITES)


def test_a_loop_over_stacks_of_layers_is_refused(tokenizer):
    config = transformers.HrmTextConfig(**SMALL, **HEADS)
    model = AutoModelForCausalLM.from_config(config, attn_implementation=ATTENTION)
    with pytest.raises(DeltapError, match="HrmText"):
        refuse_unsupported(model)


def test_attention_sinks_are_refused_and_not_forgotten(tokenizer):
    """GPT-OSS adds a learned logit to every softmax, which plain attention does not know."""
    config = transformers.GptOssConfig(
        **SMALL, **HEADS, head_dim=8, num_local_experts=2, num_experts_per_tok=1, sliding_window=tiny.WINDOW
    )
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(config, attn_implementation=ATTENTION).eval()
    for layer in decoder_layers(model):
        torch.nn.init.ones_(layer.self_attn.sinks)
    with pytest.raises(DeltapError, match=r"GptOssForCausalLM.*its own attention computes something else"):
        check_model(Engine(model, 4096), Prompter(tokenizer, "base", PromptSettings()), ("attn",))


def test_positions_that_change_with_the_length_limit_the_length():
    factors = {"rope_type": "longrope", "short_factor": [1.0] * 4, "long_factor": [8.0] * 4, "rope_theta": 10000.0}
    config = transformers.Phi3Config(
        **{**tiny.SIZES, "max_position_embeddings": 4096}, original_max_position_embeddings=64, rope_parameters=factors
    )
    assert Engine(AutoModelForCausalLM.from_config(config), 100).max_positions == 64
    assert Engine(tiny.model("phi3"), 100).max_positions == 256
