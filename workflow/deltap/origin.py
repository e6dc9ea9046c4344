"""What made a run, in one place: collected from what its tables say of themselves (see `deltap.provenance`)."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from deltap import __version__, markdown
from deltap.errors import DeltapError
from deltap.files import digest, file_sha256
from deltap.manifest import read_manifest
from deltap.mixed import records_of
from deltap.tables import read_metadata

# What inference says of a model, and the table of questions of a data set.
_MODEL_FACTS = ("model_revision", "engine", "ranks", "device", "threads", "deepspeed")
_DATASET_FACTS = ("repository", "commit", "file_sha256", "ids_file_sha256")

Record = Mapping[str, Any]


def origin(tables: Sequence[Path], manifests: Sequence[Path], configuration: Mapping[str, Any]) -> dict[str, Any]:
    """Return what made the tables of a run, as a JSON value that is the same whenever they are the same.

    ``manifests`` are those of the run's downloads, ``configuration`` is the whole one, defaults and definitions
    included. Every fact is a list: a run that was made in parts may have several values of one.
    """
    records = list(_distinct(records_of([read_metadata(path).get("provenance") for path in tables])))
    return {
        "deltap": __version__,
        "models": _of(records, "model", ("inference",), _MODEL_FACTS),
        "datasets": _of(records, "dataset", ("questions",), _DATASET_FACTS),
        "language_models": [record["asked"] for record in records if "asked" in record],
        "downloads": [_download(path) for path in manifests],
        "stages": _stages(records),
        "versions": _values([record["versions"] for record in records if record["stage"] == "inference"]),
        "tables": {path.name: {"sha256": file_sha256(path)} for path in tables},
        "configuration": dict(configuration),
    }


def _distinct(records: Iterator[Record]) -> Iterator[Record]:
    seen = set()
    for record in records:
        if (key := digest(record)) not in seen:
            seen.add(key)
            yield record


def _values(facts: Sequence[Any]) -> list[Any]:
    """Return the different facts, in the order of their first place."""
    return list({digest(fact): fact for fact in facts}.values())


def _of(records: Sequence[Record], key: str, stages: Sequence[str], names: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Return name of a model or data set → fact → values, from the records of ``stages``."""
    found: dict[str, dict[str, list[Any]]] = {}
    for record in records:
        if record["stage"] in stages:
            facts = found.setdefault(record["settings"][key], {})
            for name, fact in ({**record, **record.get("download", {})}).items():
                if name in names:
                    facts.setdefault(name, []).append(fact)
    return {which: {name: _values(all_) for name, all_ in facts.items()} for which, facts in found.items()}


def _stages(records: Sequence[Record]) -> dict[str, dict[str, list[str]]]:
    found: dict[str, dict[str, list[str]]] = {}
    for record in records:
        stage = found.setdefault(record["stage"], {"deltap": [], "code": [], "settings_digest": []})
        for name, known in stage.items():
            if record[name] not in known:
                known.append(record[name])
    return found


def _download(path: Path) -> dict[str, Any]:
    manifest = read_manifest(path.parent)
    if manifest is None:
        raise DeltapError(f"{path}: no such manifest")
    files = {file.name: file.sha256 for file in manifest.files}
    return {"source": manifest.source, "revision": manifest.revision, "files": files}


def report(found: Mapping[str, Any]) -> str:
    """Return an `origin` as Markdown."""
    configuration = yaml.safe_dump(found["configuration"], sort_keys=False, allow_unicode=True, width=100)
    parts = [
        "# Provenance\n",
        f"What made the tables of this run, as they say themselves; written by deltap {found['deltap']}. The same in "
        "full, with the checksums of every downloaded file, is in `provenance.json`.\n",
        "## Models\n",
        _facts("model", found["models"], _MODEL_FACTS),
        "The revision is a digest of the model's files: the same files have the same one, wherever they lie.\n",
        "## Data sets\n",
        _facts("data set", found["datasets"], _DATASET_FACTS),
        "## Downloads\n",
        markdown.table(["source", "revision"], [[_source(item["source"]), item["revision"]]
                                                for item in found["downloads"]])
        if found["downloads"] else "Nothing was downloaded for this run.\n",
        "## Code\n",
        "Of each stage, the version of deltap, the digest of its code without comments (parts that another version "
        "computed have another one), and with how many different settings it ran.\n",
        markdown.table(
            ["stage", "deltap", "code", "settings"],
            [[stage, ", ".join(facts["deltap"]), ", ".join(facts["code"]), len(facts["settings_digest"])]
             for stage, facts in found["stages"].items()],
        ),
        "## Libraries\n",
        *(markdown.table(["library", "version"], list(versions.items())) for versions in found["versions"]),
        "## Tables\n",
        markdown.table(["file", "SHA-256"], [[name, facts["sha256"]] for name, facts in found["tables"].items()]),
        "## Configuration\n",
        "Every key, with the defaults of what was not written, and the definitions of what is named.\n",
        f"```yaml\n{configuration}```\n",
    ]  # fmt: skip
    return "\n".join(parts)


def _facts(what: str, found: Mapping[str, Mapping[str, Sequence[Any]]], names: Sequence[str]) -> str:
    used = [name for name in names if any(name in facts for facts in found.values())]
    return markdown.table(
        [what, *(name.replace("_", " ") for name in used)],
        [[which, *(", ".join(map(str, facts.get(name, ()))) or markdown.NOTHING for name in used)]
         for which, facts in found.items()],
    )  # fmt: skip


def _source(source: Mapping[str, Any]) -> str:
    return ", ".join(f"{key} {value}" for key, value in source.items() if value is not None)
