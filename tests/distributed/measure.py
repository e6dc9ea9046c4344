"""A script that loads a model by any engine and writes what it computes, for the tests that compare engines."""

import json
import random
from pathlib import Path

import torch

from deltap import cli, ranks
from deltap.models.check import check_model
from deltap.models.knockout import Cut
from deltap.models.load import load
from deltap.models.prompts import Prompter
from deltap.models.windows import Window
from deltap.settings import ModelSettings, PromptSettings

SITES = ("attn", "mlp", "resid")


def main(options):
    entry = ModelSettings.model_validate_json(options.entry)
    tokenizer, engine = load(options.model, entry)
    write_facts(options.out, engine)
    engine.follow()
    check_model(engine, Prompter(tokenizer, entry.kind, PromptSettings(), entry.thinking), SITES)
    torch.save(everything(engine), options.out / "tensors.pt")


def write_facts(folder, engine):
    """Say of this rank how large its part of a weight is, and who else there is."""
    layer, config, here = engine.model.model.layers[0].self_attn, engine.model.config, ranks.here()
    if not hasattr(layer, "q_proj"):
        return
    weight = layer.q_proj.weight
    local = weight.to_local() if hasattr(weight, "to_local") else weight
    head = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    facts = {
        "world": torch.distributed.get_world_size() if torch.distributed.is_initialized() else 1,
        "share": local.shape[0] / (config.num_attention_heads * head),
        "dtype": str(engine.dtype),
        "threads": torch.get_num_threads(),
    }
    (folder / f"facts-{here.rank}.json").write_text(json.dumps(facts))


def everything(engine):
    """Answers to twelve prompts, and activations of every site, layer and a few positions, clean and cut."""
    generator = random.Random(0)
    prefix = [generator.randrange(2, 400) for _ in range(9)]
    prompts = [prefix + [generator.randrange(2, 400) for _ in range(generator.randrange(6, 30))] for _ in range(12)]
    cuts = [sorted(generator.sample(range(9, len(prompt) - 3), 3)) for prompt in prompts]
    positions = [[len(prompt) - 1, len(prompt) - 2, cut[0] + 1] for prompt, cut in zip(prompts, cuts, strict=True)]
    result = {}
    for name in ("whole", "shared prefix"):
        engine.share_prefix(prefix if name == "shared prefix" else [])
        result[f"{name}: answers"] = engine.generate(prompts, set(range(1, 400, 12)), 12)
        result[f"{name}: clean"] = engine.forward(prompts, positions, SITES)
        result[f"{name}: knockout"] = engine.forward(prompts, positions, SITES, cuts)
        both = engine.clean_and_knockout(prompts, positions, SITES, cuts)
        result |= dict(zip((f"{name}: both, clean", f"{name}: both, knockout"), both, strict=True))
        # The last head is another rank's than the first one's.
        heads = [Cut(cuts, first_layer=1, last_layer=1, head=head) for head in range(4)]
        answer = Cut(cuts, first_query=[len(prompt) - 3 for prompt in prompts])
        for number, found in enumerate(engine.passes(prompts, positions, SITES, [*heads, answer])):
            result[f"{name}: cut {number}"] = found
        windows = [Window(1, 2, 3), *(Window(1, 1, 2, head) for head in range(4))]
        result[f"{name}: windows"] = engine.windows(prompts, positions, SITES, cuts, windows)
        weights = engine.attention(prompts, [9] * len(prompts))
        result[f"{name}: attention"] = {str(index): each for index, each in enumerate(weights)}
    return result


if __name__ == "__main__":
    parser = cli.parser(__doc__)
    parser.add_argument("--model", type=Path)
    parser.add_argument("--entry")
    parser.add_argument("--out", type=Path)
    cli.run(main, parser)
