"""Write the configuration's JSON Schemas, which editors use to complete and check YAML files."""

import argparse
import json
from pathlib import Path

from pydantic import TypeAdapter

from deltap import cli
from deltap.files import write_text
from deltap.settings import DatasetEntry, Figure, ModelEntry, RunSettings

SCHEMAS = {
    "run": RunSettings,
    "models": dict[str, ModelEntry],
    "datasets": dict[str, DatasetEntry],
    "figures": dict[str, Figure],
}


def main(options: argparse.Namespace) -> None:
    """Write ``<name>.schema.json`` for each kind of configuration file."""
    for name, kind in SCHEMAS.items():
        schema = {"$schema": "https://json-schema.org/draft/2020-12/schema", **TypeAdapter(kind).json_schema()}
        write_text(options.out / f"{name}.schema.json", json.dumps(schema, indent=1, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    parser = cli.parser(__doc__)
    parser.add_argument("--out", required=True, type=Path, help="the schemas' directory")
    cli.run(main, parser)
