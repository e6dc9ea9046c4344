"""What every engine does alike: reading safetensors weights into a transformers model."""

from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from transformers import AutoModelForCausalLM

from deltap.errors import DeltapError
from deltap.models.knockout import ATTENTION
from deltap.models.memory import is_out_of_memory


def pretrained(directory: Path, config: Any, trusted: bool, **keywords: Any) -> Any:
    """Return the model in ``directory``; ``keywords`` go to ``from_pretrained``.

    Nothing is fetched, pickled weights are not loaded, nor is the directory's own code unless it is ``trusted``. Raises
    DeltapError if transformers cannot.
    """
    try:
        return AutoModelForCausalLM.from_pretrained(
            directory,
            config=config,
            attn_implementation=ATTENTION,
            trust_remote_code=trusted,
            local_files_only=True,
            use_safetensors=True,
            **keywords,
        )
    except (OSError, ValueError, KeyError, RuntimeError, ImportError, SafetensorError) as error:
        if is_out_of_memory(error):
            raise
        raise DeltapError(f"{directory}: transformers cannot load this model: {error}") from error
