"""A script that loads a model and writes how much anonymous memory each rank needed for it at most.

File-mapped pages are not counted: the ranks of a node share them, and the system can drop them.
"""

import json
import threading
import time
from pathlib import Path

from deltap import cli, ranks
from deltap.models.load import load
from deltap.settings import ModelSettings


def anonymous() -> int:
    """Bytes of anonymous memory that this process has now."""
    status = Path("/proc/self/status").read_text()
    return int(next(line.split()[1] for line in status.splitlines() if line.startswith("RssAnon:"))) * 1024


class Peak(threading.Thread):
    """The most anonymous memory while it runs, sampled every few milliseconds."""

    def __init__(self):
        super().__init__(daemon=True)
        self.start_bytes = self.bytes = anonymous()
        self.going = True

    def run(self):
        while self.going:
            self.bytes = max(self.bytes, anonymous())
            time.sleep(0.003)


def main(options):
    entry = ModelSettings.model_validate_json(options.entry)
    if entry.engine == "deepspeed":
        import deepspeed  # noqa: F401 - a library's own memory is not the checkpoint's
    peak = Peak()
    peak.start()
    _, engine = load(options.model, entry)
    peak.going = False
    peak.join()
    facts = {"start": peak.start_bytes, "peak": peak.bytes - peak.start_bytes, "end": anonymous() - peak.start_bytes}
    (options.out / f"{ranks.here().rank}.json").write_text(json.dumps(facts))
    engine.follow()


if __name__ == "__main__":
    parser = cli.parser(__doc__)
    parser.add_argument("--model", type=Path)
    parser.add_argument("--entry")
    parser.add_argument("--out", type=Path)
    cli.run(main, parser)
