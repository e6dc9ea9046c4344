"""Loading a split model needs each rank's part of it once, and never the whole per rank."""

import json
import sys
from pathlib import Path

import large
import pytest
import starting
import torch
from test_engines import engines, entry

SCRIPT = Path(__file__).with_name("load_memory.py")
pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc"),
    pytest.mark.xdist_group("distributed"),
]


@pytest.fixture(scope="module", params=[(torch.bfloat16, 5), (torch.float32, 1)], ids=["bfloat16, 5 files", "float32"])
def checkpoint(request, tmp_path_factory):
    """A model of more than 2 GB, its dtype and its size; removed when its tests are done."""
    dtype, files = request.param
    directory = tmp_path_factory.mktemp("large") / "model"
    yield directory, dtype, large.checkpoint(directory, dtype, files)
    for file in directory.iterdir():
        file.unlink()


@engines
def test_a_rank_needs_its_part_of_the_memory_and_a_tenth_more(checkpoint, tmp_path, engine):
    """From bfloat16 to float32, sharded, and from float32 as it is. What counts is the size in the dtype asked for."""
    directory, dtype, size = checkpoint
    assert size >= 2e9
    wanted = size * torch.float32.itemsize / dtype.itemsize
    settings = entry(engine=engine, ranks=2, dtype="float32").model_dump_json()
    starting.finish(starting.start(SCRIPT, "--model", directory, "--out", tmp_path, "--entry", settings), seconds=500)
    peaks = [json.loads((tmp_path / f"{rank}.json").read_text())["peak"] for rank in range(2)]
    assert max(peaks) <= (1 / 2 + 0.1) * wanted, peaks
