"""A checkpoint of about 2 GB, for measuring what loading it takes."""

import json
from pathlib import Path

import torch
from safetensors.torch import save_file
from transformers import AutoModelForCausalLM, Qwen3Config

import tiny

# The proportions of Qwen3-8B, with fewer and narrower layers, and a smaller vocabulary.
CONFIG = {
    "vocab_size": 8000,
    "hidden_size": 2048,
    "intermediate_size": 6144,
    "num_attention_heads": 16,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "tie_word_embeddings": False,
    "bos_token_id": 0,
    "eos_token_id": 1,
}
LAYERS = {torch.bfloat16: 21, torch.float32: 11}


def checkpoint(directory: Path, dtype: torch.dtype, files: int) -> int:
    """Write a model of ``dtype`` in ``files`` files, and return its size in bytes (2 GB or more)."""
    directory.mkdir()
    config = Qwen3Config(**CONFIG, num_hidden_layers=LAYERS[dtype], dtype=dtype)
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(config)
    weights = {name: weight.shape for name, weight in model.state_dict().items()}
    config.architectures = [type(model).__name__]
    config.save_pretrained(directory)
    tiny.tokenizer().save_pretrained(directory)
    index = {}
    for number in range(files):
        name = "model.safetensors" if files == 1 else f"model-{number + 1:05}-of-{files:05}.safetensors"
        part = list(weights)[number::files]
        # Not zero, which the system may keep without memory.
        save_file(
            {key: torch.full(weights[key], 0.01, dtype=dtype) for key in part}, directory / name, {"format": "pt"}
        )
        index |= dict.fromkeys(part, name)
    size = sum(file.stat().st_size for file in directory.glob("*.safetensors"))
    if files > 1:
        text = json.dumps({"metadata": {"total_size": size}, "weight_map": index})
        (directory / "model.safetensors.index.json").write_text(text)
    return size
