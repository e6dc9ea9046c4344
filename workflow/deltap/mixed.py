"""Files that belong together have to be made together: by the same model, settings, libraries and code.

What made a file is its provenance (see `deltap.provenance`), a JSON value that holds those of its inputs. Other
comments or another layout of the code make no difference, for its digest does not see them.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from deltap.errors import DeltapError

_SHOWN = 4  # differences that a message names


def refuse_mixed(one: Path, other: Path, made_one: Any, made_other: Any) -> None:
    """Raise DeltapError that names the differences where two files of one series were not made by the same run."""
    if different := differences(made_one, made_other):
        raise DeltapError(f"{one} and {other} were not made by the same run: {_told(different, made_other)}")


def refuse_other_source(path: Path, made_by: Any, source: Path, made_source: Any) -> None:
    """Raise DeltapError where the file ``path`` was made from another ``source`` than the one that is there now.

    ``made_by`` and ``made_source`` are what made the two; a file from elsewhere, which does not say it, is let pass.
    """
    if not isinstance(made_by, dict) or made_source is None:
        return
    if different := differences(made_by.get("inputs"), made_source):
        raise DeltapError(f"{path} was not made from {source} as it is now: {_told(different, made_by)}")


class Shared:
    """What all series of one model, and all of one data set, have in common: the model itself, and the questions."""

    def __init__(self) -> None:
        self._found: dict[tuple[str, str], tuple[Path, dict[str, Any]]] = {}

    def refuse_others(self, path: Path, made_by: Any) -> None:
        """Raise DeltapError where another series of the same name was made from another model or other questions."""
        for record in records_of(made_by):
            if not (common := _common(record)):
                continue
            kind, now = common
            name = record["settings"][kind]
            first, before = self._found.setdefault((kind, name), (path, now))
            if different := differences(before, now):
                raise DeltapError(
                    f"{first} and {path} were made from different {_SEVERAL[kind]} called {name!r}: "
                    f"{_told(different, record)}"
                )


def _common(record: Mapping[str, Any]) -> tuple[str, dict[str, Any]] | None:
    """Return whether a record is about a model or a data set, and what it says about it; None where about neither."""
    match record.get("stage"):
        case "answers" | "inference" | "interventions":
            return "model", {
                "model_revision": record.get("model_revision"),
                "dtype": record["settings"]["entry"]["dtype"],
            }
        case "questions":
            return "dataset", {fact: record.get(fact) for fact in ("file_sha256", "ids_file_sha256", "download")}
        case _:
            return None


_SEVERAL = {"model": "models", "dataset": "question sets"}


def records_of(made_by: Any) -> Iterator[Mapping[str, Any]]:
    """Yield every record of one or several provenances, those of inputs first, each without its inputs."""
    if isinstance(made_by, list):
        for inner in made_by:
            yield from records_of(inner)
    elif isinstance(made_by, dict):
        yield from records_of(made_by.get("inputs"))
        yield {key: fact for key, fact in made_by.items() if key != "inputs"}


def _told(different: list[str], made_by: Any) -> str:
    more = f" and {len(different) - _SHOWN} more" if len(different) > _SHOWN else ""
    stage = made_by.get("stage") if isinstance(made_by, dict) else None
    return (
        f"{'; '.join(different[:_SHOWN])}{more}. Make them again: snakemake --forcerun {stage or 'RULE'}, with the "
        "run's --configfile"
    )


def differences(one: Any, other: Any, key: str = "") -> list[str]:
    """Return one line for each key in which two provenances differ."""
    if isinstance(one, dict) and isinstance(other, dict):
        names = sorted((one.keys() | other.keys()) - {"settings_digest"})  # the settings say it better
        return [
            line
            for name in names
            for line in differences(one.get(name), other.get(name), f"{key}.{name}" if key else name)
        ]
    return [] if one == other else [f"{key or 'provenance'} is {one!r} and {other!r}"]
