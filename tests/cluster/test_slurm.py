"""The workflow on a real Slurm; whatever happens on the way, the table is that of a run on one machine."""

import heads
from heads import run

FIGURE = "results/mine/figures/delta_p.png"


def test_from_nothing_to_the_figure(cluster, configfile, table, tmp_path):
    output = run(cluster, tmp_path, configfile)
    print(output)
    assert (tmp_path / heads.TABLE).read_bytes() == table
    assert (tmp_path / FIGURE).exists()
