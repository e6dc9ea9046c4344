"""What the controls cost that need no language model: probes trained anew, at the size of the paper's larger model.

Run by hand: ``OMP_NUM_THREADS=1 python -m benchmarks.controls``. Time grows with layers and draws, and is divided by
the job's cores.
"""

import resource
import sys
import tempfile
import time
from pathlib import Path

from deltap.controls.probabilities import probabilities
from deltap.settings import ControlSettings

LAYERS, HIDDEN, SIZES = 2, 5120, {"train": 1500, "validation": 450, "test": 1050}


def main() -> None:
    """Print seconds for each layer, with the default controls and without the outer bootstrap, and the peak memory."""
    sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
    import effect

    effect.LAYERS, effect.HIDDEN, effect.SIZES = LAYERS, HIDDEN, SIZES
    with tempfile.TemporaryDirectory() as folder:
        measured, _ = effect.measured(Path(folder))
        for name, settings in {
            "default controls": ControlSettings(interventions=None),
            "without refits": ControlSettings(interventions=None, refits=0),
        }.items():
            start = time.process_time()  # whatever else the machine does
            probabilities(measured, settings)
            print(f"{name}: {(time.process_time() - start) / LAYERS:.1f} s of a core for each layer")
    print(f"peak memory {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6:.1f} GB")


if __name__ == "__main__":
    main()
