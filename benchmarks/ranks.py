"""How long both passes take where several ranks hold the model: a script that scripts/launch.py starts."""

import argparse
import json
import random
from pathlib import Path

from benchmarks.sweep import SITES
from benchmarks.timing import interleaved
from deltap import cli
from deltap.models.load import load
from deltap.settings import ModelSettings


def main(options: argparse.Namespace) -> None:
    """Time both passes over random texts; the first rank writes the seconds of each run."""
    entry = ModelSettings.model_validate_json(options.entry)
    _, engine = load(options.model, entry)
    engine.follow()
    draw = random.Random(0)
    prefix = [draw.randrange(2, 400) for _ in range(90)]
    texts = [prefix + [draw.randrange(2, 400) for _ in range(30)] for _ in range(options.samples)]
    cuts, positions = [[95, 96, 97]] * len(texts), [[119]] * len(texts)
    engine.share_prefix(prefix)
    seconds = interleaved(
        {"both": lambda: engine.clean_and_knockout(texts, positions, SITES, cuts)}, options.runs, warm_up=2
    )
    options.out.write_text(json.dumps(seconds["both"]))


if __name__ == "__main__":
    parser = cli.parser(__doc__)
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--entry", required=True, help="settings.ModelSettings as JSON")
    parser.add_argument("--samples", type=int, required=True)
    parser.add_argument("--runs", type=int, required=True)
    parser.add_argument("--out", type=Path, required=True)
    cli.run(main, parser)
