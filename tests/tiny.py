"""Tiny random language models and a tokenizer for them, made on the spot."""

from pathlib import Path

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import (
    AutoModelForCausalLM,
    LlamaConfig,
    MistralConfig,
    PreTrainedConfig,
    PreTrainedModel,
    PreTrainedTokenizerFast,
    Qwen3Config,
)

from deltap.models.knockout import ATTENTION

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
FAMILIES: dict[str, PreTrainedConfig] = {
    "qwen3": Qwen3Config(**SIZES, head_dim=16),
    "llama": LlamaConfig(**SIZES),
    "mistral": MistralConfig(**SIZES, sliding_window=5),  # shorter than any prompt here
}


def model(family: str, seed: int = 0) -> PreTrainedModel:
    """Return a random float32 model of a family, whose norms have random weights too."""
    torch.manual_seed(seed)
    made = AutoModelForCausalLM.from_config(FAMILIES[family], attn_implementation=ATTENTION).eval()
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


def save(directory: Path, family: str = "qwen3", seed: int = 0) -> Path:
    """Write a model directory and return it; every fourth token ends an answer, so that answers do end."""
    made = model(family, seed)
    made.generation_config.eos_token_id = list(range(1, 400, 4))
    made.save_pretrained(directory)
    tokenizer().save_pretrained(directory)
    return directory
