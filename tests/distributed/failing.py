"""A script of several ranks that can fail in many ways, for the tests of the launcher."""

import os
import signal
import sys
import time
from pathlib import Path

from deltap import cli, ranks
from deltap.errors import DeltapError


def main(options):
    here = ranks.here()
    (options.folder / f"{here.rank}.pid").write_text(str(os.getpid()))
    while len(list(options.folder.glob("*.pid"))) < here.number:
        time.sleep(0.05)
    if options.fail == "port":
        import torch.distributed

        torch.distributed.init_process_group("gloo")
        torch.distributed.barrier()
        (options.folder / f"{here.rank}.port").write_text(os.environ["MASTER_PORT"])
        return
    if here.rank == options.rank:
        match options.fail:
            case "error":
                raise DeltapError("questions.tsv:7: no question")
            case "bug":
                print(1 / 0)
            case "kill":
                print("the last words", file=sys.stderr, flush=True)
                os.kill(os.getpid(), signal.SIGKILL)
            case "status":
                os._exit(3)
    if options.fail != "nothing":
        time.sleep(300)
    cli.logger.info("finished with %d threads", int(os.environ["OMP_NUM_THREADS"]))
    (options.folder / f"{here.rank}.done").write_text(f"{here.number}")


if __name__ == "__main__":
    parser = cli.parser(__doc__)
    parser.add_argument("--fail", default="nothing")
    parser.add_argument("--rank", type=int, default=1)
    parser.add_argument("--folder", type=Path)
    cli.run(main, parser)
