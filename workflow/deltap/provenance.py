"""What made a file: the code, the versions of the libraries, and the settings."""

from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

from deltap import __version__
from deltap.code import code_digest
from deltap.files import digest

# The libraries that numbers may depend on.
_LIBRARIES = (
    "numpy",
    "pyarrow",
    "safetensors",
    "scikit-learn",
    "scipy",
    "tokenizers",
    "torch",
    "transformers",
)


@cache
def versions() -> dict[str, str]:
    """Return the versions of the libraries that numbers may depend on, without local build tags."""
    return {name: version(name).split("+")[0] for name in _LIBRARIES}


def provenance(script: str | Path, settings: Any, **facts: Any) -> dict[str, Any]:
    """Return what made a file: stage, code digest, settings and their digest, versions, and further ``facts``.

    Only what decides the content belongs here; host, time and job id are in the job's side file (`deltap.cli`).
    """
    return {
        "stage": Path(script).stem,
        "deltap": __version__,
        "code": code_digest(script),
        "settings": settings,
        "settings_digest": digest(settings),
        "versions": versions(),
        **facts,
    }
