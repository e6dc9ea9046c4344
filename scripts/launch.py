"""Start a script in as many processes (ranks) as its model is split into, and end them together.

    python scripts/launch.py --ranks 2 --engine deepspeed -- scripts/inference.py --settings …

With one rank it is the same as starting the script itself. With --nodes it belongs into a Slurm job of that many.
"""

import argparse
import datetime
import sys
from pathlib import Path

from deltap import cli
from deltap.launch import RankFailed, launch

if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, default=1, help="number of processes")
    parser.add_argument("--nodes", type=int, default=1, help="number of nodes that they are dealt out to")
    parser.add_argument("--threads", type=int, default=1, help="CPU threads of each")
    parser.add_argument("--engine", default="single", help="the model's engine, which decides on the launcher")
    parser.add_argument("--device", default="auto", help="the model's device; cpu hides GPUs from the ranks")
    parser.add_argument("--log", type=Path, help="the script's log, to which the reason of a failure is added")
    parser.add_argument("command", nargs="+", metavar="-- SCRIPT ARGUMENTS", help="what to run")
    options = parser.parse_args()
    started = datetime.datetime.now(datetime.UTC)
    shared = options.log.parent if options.log else Path()
    try:
        launch(options.command, options.ranks, options.threads, options.engine, options.device, options.nodes, shared)
    except RankFailed as error:
        cli.ranks_failed(str(error), options.log, started)
        sys.exit(1)
