"""What changes nothing changes no byte; what changes batches changes no more than rounding (docs/determinism.md)."""

import numpy as np
import pytest
import running
from killing import tables

from deltap.tables import ANCHORS, read_table


@pytest.fixture(scope="module")
def once(configfile):
    """The folder of a run on two cores."""
    running.snakemake(configfile.parent, configfile)
    return configfile.parent


def test_the_number_of_cores_changes_no_byte(once, configfile, tmp_path):
    running.snakemake(tmp_path, configfile, "--cores", "1")
    assert tables(tmp_path) == tables(once)


@pytest.mark.parametrize(
    "change",
    [{"shards": 2, "chunk_questions": 11}, {"batch_tokens": 12}],
    ids=str,
)
def test_shards_chunks_and_batches_change_no_more_than_rounding(once, configfile, tmp_path, change):
    if "batch_tokens" in change:  # a 700th of the default: one sample at a time
        config = running.with_definition(configfile, "model", "tiny-base", **change)
    else:
        config = running.changed(
            configfile, inference={"sites": ["attn", "resid"], "positions": ["exact_answer_last"], **change}
        )
    running.snakemake(tmp_path, config)
    keys = ["site", "position", "layer", "question_id"]
    one, other = (
        read_table(folder / "results" / "mine" / "anchors.parquet", ANCHORS)
        .to_pandas()
        .astype({"site": str, "position": str})
        .sort_values(keys)
        .reset_index(drop=True)
        for folder in (once, tmp_path)
    )
    assert (one[keys] == other[keys]).all(axis=None)
    for name in ("p_clean", "p_knockout"):
        assert np.abs(one[name] - other[name]).max() < 1e-3
    certain = ~(one["near_threshold"] | other["near_threshold"])
    assert (one["flips"] == other["flips"])[certain].all()
