"""Tiny random language models and tokenizers for them, made on the spot."""

import copy
import json
from pathlib import Path

import torch
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
from transformers import (
    AutoModelForCausalLM,
    Gemma2Config,
    Gemma3nTextConfig,
    Gemma3TextConfig,
    LlamaConfig,
    MistralConfig,
    Olmo2Config,
    Phi3Config,
    PreTrainedConfig,
    PreTrainedModel,
    PreTrainedTokenizerFast,
    Qwen2Config,
    Qwen3Config,
)

from deltap.models.knockout import ATTENTION

torch.set_num_threads(1)  # what is this small is slower with several

CHAT_TEMPLATE = (
    "{{ bos_token }}{% for m in messages %}<|{{ m['role'] }}|>\n{{ m['content'] }}<|end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>\n{% endif %}"
)
WORDS = (
    "Question: What is the capital of France? Answer: Paris is a city in Europe. Who wrote the play Hamlet? "
    "William Shakespeare painted the river in the country of the king and the old man had seven wonders of the world. "
)
SIZES = {
    "vocab_size": 400,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 256,
    "bos_token_id": 0,
    "eos_token_id": 1,
    "pad_token_id": 1,
    "initializer_range": 0.1,
    "tie_word_embeddings": False,
}
WINDOW = 5  # of sliding attention, shorter than any prompt here
FAMILIES: dict[str, PreTrainedConfig] = {
    "qwen3": Qwen3Config(**SIZES, head_dim=16),
    "llama": LlamaConfig(**SIZES),
    "mistral": MistralConfig(**SIZES, sliding_window=WINDOW),
}
# Local and global layers by turns, and the other way round.
_LOCAL_FIRST = ["sliding_attention", "full_attention"] * 2
_GLOBAL_FIRST = ["full_attention", "sliding_attention"] * 2
_GEMMA = {**SIZES, "head_dim": 16, "query_pre_attn_scalar": 16, "sliding_window": WINDOW, "layer_types": _LOCAL_FIRST}
MORE_FAMILIES: dict[str, PreTrainedConfig] = {
    "qwen3, mixed": Qwen3Config(
        **SIZES, head_dim=16, use_sliding_window=True, sliding_window=WINDOW, layer_types=_GLOBAL_FIRST
    ),
    "qwen2": Qwen2Config(**SIZES),
    "qwen2, mixed": Qwen2Config(**SIZES, use_sliding_window=True, sliding_window=WINDOW, layer_types=_GLOBAL_FIRST),
    "qwen2, local above": Qwen2Config(**SIZES, use_sliding_window=True, sliding_window=WINDOW, max_window_layers=2),
    "gemma2": Gemma2Config(**_GEMMA, attn_logit_softcapping=2.0),  # low enough to matter
    "gemma3": Gemma3TextConfig(**_GEMMA),
    "gemma3n": Gemma3nTextConfig(
        **{key: value for key, value in _GEMMA.items() if key != "query_pre_attn_scalar"},
        num_kv_shared_layers=2,
        vocab_size_per_layer_input=400,
        hidden_size_per_layer_input=8,
        laurel_rank=8,
        activation_sparsity_pattern=[0.5, 0.0, 0.0, 0.0],
    ),
    "phi3": Phi3Config(**SIZES, sliding_window=WINDOW),
    "olmo2": Olmo2Config(**SIZES),
}
ALL_FAMILIES = FAMILIES | MORE_FAMILIES


def model(family: str, seed: int = 0, **changes: int) -> PreTrainedModel:
    """Return a random float32 model of a family, whose norms have random weights too; ``changes`` to its sizes."""
    torch.manual_seed(seed)
    config = copy.deepcopy(ALL_FAMILIES[family])
    config.update(changes)
    made = AutoModelForCausalLM.from_config(config, attn_implementation=ATTENTION).eval()
    for name, parameter in made.named_parameters():
        if "norm" in name:
            torch.nn.init.uniform_(parameter, 0.5, 1.5)
    return made


def tokenizer() -> PreTrainedTokenizerFast:
    """Return a byte-level tokenizer with a chat template."""
    special = ["<|begin|>", "<|end|>", "<|user|>", "<|assistant|>"]
    backend = Tokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=400, special_tokens=special, initial_alphabet=alphabet, show_progress=False
    )
    backend.train_from_iterator([WORDS], trainer)
    made = PreTrainedTokenizerFast(
        tokenizer_object=backend, bos_token="<|begin|>", eos_token="<|end|>", pad_token="<|end|>"
    )
    made.chat_template = CHAT_TEMPLATE
    return made


def sentencepiece(
    *, prefix: str = "normalizer", unigram: bool = False, normalizer: normalizers.Normalizer | None = None
) -> PreTrainedTokenizerFast:
    """Return a tokenizer as made by converting a SentencePiece model: ``▁`` for blanks, bytes for unknown characters.

    ``prefix``: who puts the blank at the beginning, as Llama 2's and Mistral's files do: ``normalizer`` (before every
    piece of text between special tokens), ``always`` (the same by the pre-tokenizer) or ``first`` (the text only).
    """
    special = ["<unk>", "<s>", "</s>", "[INST]", "[/INST]"]
    known = [*special, *(f"<0x{byte:02X}>" for byte in range(256))]
    trainer: trainers.Trainer
    if unigram:
        sketch = Tokenizer(models.Unigram())
        trainer = trainers.UnigramTrainer(vocab_size=100, unk_token="<unk>", special_tokens=["<unk>"])
    else:
        sketch = Tokenizer(models.BPE(unk_token="<unk>"))
        trainer = trainers.BpeTrainer(vocab_size=130, special_tokens=["<unk>"], show_progress=False)
    sketch.pre_tokenizer = pre_tokenizers.Metaspace()
    sketch.train_from_iterator([WORDS], trainer)
    learned = json.loads(sketch.to_str())["model"]
    if unigram:
        pieces = [(piece, -100.0) for piece in known] + [
            tuple(item) for item in learned["vocab"] if item[0] not in known
        ]
        backend = Tokenizer(models.Unigram(pieces, unk_id=0, byte_fallback=True))
    else:
        words = sorted((word for word in learned["vocab"] if word not in known), key=learned["vocab"].__getitem__)
        vocabulary = {word: index for index, word in enumerate([*known, *words])}
        merges = [tuple(merge) for merge in learned["merges"]]
        backend = Tokenizer(models.BPE(vocabulary, merges, unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    steps = [normalizer] if normalizer else []
    if prefix == "normalizer":
        steps += [normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")]
    else:
        backend.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme=prefix, split=False)
    if steps:
        backend.normalizer = normalizers.Sequence(steps)
    backend.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    backend.post_processor = processors.TemplateProcessing(single="<s> $A", pair=None, special_tokens=[("<s>", 1)])
    backend.add_special_tokens(special)
    made = PreTrainedTokenizerFast(tokenizer_object=backend, bos_token="<s>", eos_token="</s>", unk_token="<unk>")
    made.chat_template = "<s>{% for m in messages %}[INST] {{ m['content'] | trim }}[/INST]{% endfor %}"
    return made


def normalising(normalizer: normalizers.Normalizer) -> PreTrainedTokenizerFast:
    """Return the byte-level tokenizer of `tokenizer` with a normalizer before it."""
    made = tokenizer()
    made.backend_tokenizer.normalizer = normalizer
    return made


def save(directory: Path, family: str = "qwen3", seed: int = 0, **changes: int) -> Path:
    """Write a model directory and return it; every fourth token ends an answer, so that answers do end."""
    made = model(family, seed, **changes)
    made.generation_config.eos_token_id = list(range(1, 400, 4))
    made.save_pretrained(directory)
    tokenizer().save_pretrained(directory)
    return directory
