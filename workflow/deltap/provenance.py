"""What made a file: the code, the versions of the libraries, and the settings."""

from collections.abc import Sequence
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

from deltap import __version__
from deltap.code import code_digest
from deltap.files import digest
from deltap.mixed import refuse_mixed
from deltap.tables import read_metadata

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


def same_origin(paths: Sequence[Path]) -> Any:
    """Return what made the tables; raise DeltapError that names the difference where it is not the same for all."""
    first, *others = [made(path) for path in paths]
    for path, other in zip(paths[1:], others, strict=True):
        refuse_mixed(paths[0], path, first, other)
    return first


def made(path: Path) -> Any:
    """Return what made a table, None where it does not say."""
    return read_metadata(path).get("provenance")
