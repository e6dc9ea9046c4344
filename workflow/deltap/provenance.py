"""What made a file: the code, the versions of the libraries, and the settings."""

from collections.abc import Sequence
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

from deltap import __version__
from deltap.code import code_digest
from deltap.errors import DeltapError
from deltap.files import digest
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
    first, *others = [read_metadata(path).get("provenance") for path in paths]
    for path, other in zip(paths[1:], others, strict=True):
        if different := _differences(first, other):
            raise DeltapError(
                f"{paths[0]} and {path} were not made by the same run: {'; '.join(different)}; "
                "compute the older one again"
            )
    return first


def _differences(one: Any, other: Any, key: str = "") -> list[str]:
    """Return one line per key in which two provenances differ."""
    if isinstance(one, dict) and isinstance(other, dict):
        return [
            line
            for name in sorted(one.keys() | other.keys())
            for line in _differences(one.get(name), other.get(name), f"{key}.{name}" if key else name)
        ]
    return [] if one == other else [f"{key or 'provenance'} is {one!r} and {other!r}"]
