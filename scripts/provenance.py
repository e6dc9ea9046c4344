"""Write what made a run: versions, revisions and code as its tables say, and its whole configuration."""

import argparse
import json
from pathlib import Path

import yaml

from deltap import cli
from deltap.files import write_json, write_text
from deltap.origin import origin, report


def main(options: argparse.Namespace) -> None:
    """Write the collected provenance for programs and for people, and the configuration that was given."""
    found = origin(options.tables, options.manifests, json.loads(options.configuration))
    write_json(options.out, found)
    write_text(options.report, report(found))
    write_text(options.config, yaml.safe_dump(json.loads(options.given), sort_keys=False, allow_unicode=True))


if __name__ == "__main__":
    parser = cli.parser(__doc__)
    parser.add_argument("--tables", required=True, type=Path, nargs="+", help="the run's tables (Parquet)")
    parser.add_argument("--manifests", type=Path, nargs="*", default=[], help="manifests of what was downloaded")
    parser.add_argument("--given", required=True, help="the configuration as Snakemake has it, as JSON")
    parser.add_argument("--configuration", required=True, help="the same with defaults and definitions, as JSON")
    parser.add_argument("--out", required=True, type=Path, help="the provenance (JSON)")
    parser.add_argument("--report", required=True, type=Path, help="the same to read (Markdown)")
    parser.add_argument("--config", required=True, type=Path, help="the configuration as given (YAML)")
    cli.run(main, parser)
