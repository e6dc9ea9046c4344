"""Which numbers of ranks divide a model; from its configuration alone, so that it is known before anything is
loaded."""

import json
import math
from pathlib import Path
from typing import Any

from deltap.errors import DeltapError

# Every rank has whole attention heads and equal parts of the feed-forward block.
_DIVIDED = ("num_attention_heads", "num_key_value_heads", "intermediate_size")


def check_split(directory: Path, engine: str, ranks: int) -> None:
    """Raise DeltapError, with the numbers that would do, if the model in ``directory`` cannot be split by ``ranks``."""
    sizes = _sizes(directory / "config.json")
    uneven = [f"{name} {size}" for name, size in sizes.items() if size % ranks]
    if uneven:
        possible = [number for number in range(2, math.gcd(*sizes.values()) + 1) if divides(sizes, number)]
        remedy = f"ranks (gpus): {', '.join(map(str, possible))}, or " if possible else ""
        raise DeltapError(
            f"{directory}: engine '{engine}' cannot split this model between {ranks} ranks, which do not divide its "
            f"{' and '.join(uneven)}; possible: {remedy}engine: device_map"
        )


def divides(sizes: dict[str, int], ranks: int) -> bool:
    """Tell whether every size is a multiple of ``ranks``."""
    return all(size % ranks == 0 for size in sizes.values())


def _sizes(config: Path) -> dict[str, int]:
    try:
        value: dict[str, Any] = json.loads(config.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise DeltapError(f"{config}: cannot be read: {error}") from None
    text = value.get("text_config") or value
    heads = text.get("num_attention_heads")
    found = {**text, "num_key_value_heads": text.get("num_key_value_heads") or heads}
    # Some families (Gemma 3n) have a size for each layer.
    return {
        name: math.gcd(*size) if isinstance(size := found[name], list) else size for name in _DIVIDED if found.get(name)
    }
