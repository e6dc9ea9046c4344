"""A run as one archive that other machines draw figures from."""

import zipfile
from collections.abc import Mapping
from pathlib import Path

from deltap import __version__
from deltap.files import whole

README = """\
# The run {run}

Written by deltap {version}. This folder is a run's folder of results, without what a model said inside (activations).

| file | what it is |
| --- | --- |
| `*.parquet`, `*.csv` | the tables: ΔP of every sample (`delta_p`), its means (`delta_p_summary`), and so on |
| `*.md`, `*.json` | reports to read, and what made the run (`provenance`) |
| `figures/` | the figures |
| `config.yaml` | the configuration that was given; with defaults and definitions it stands in `provenance.json` |
| `CITATION.cff`, `LICENSE` | how to cite deltap and the paper, and deltap's licence |

## Draw a figure from it

Where deltap is installed, on any machine, without a model and without a GPU, from deltap's folder:

    python scripts/plot_delta_p.py --table PATH/TO/{run} --out delta_p.png delta_p.pdf

`--help` lists what can be changed: colours, models, data sets, site, position, interval, size. Tables of several runs
stand side by side in one figure: `--table PATH/TO/{run} ANOTHER/RUN --label ours theirs`. To draw every figure of the
run's configuration: `snakemake figures --cores 1 --configfile YOURS.yaml --config figure_tables=PATH/TO/{run}`.
"""

_TIME = (1980, 1, 1, 0, 0, 0)  # the earliest that a ZIP archive can hold
_MODE = 0o100644 << 16


def write_archive(path: Path, run: str, files: Mapping[str, Path]) -> None:
    """Write a ZIP archive with the folder ``run``: its README, and ``files`` by their names in it.

    The same files give the same bytes, on whatever day and in whatever order they were made.
    """
    readme = README.format(run=run, version=__version__)
    with whole(path) as temporary, zipfile.ZipFile(temporary, "w", zipfile.ZIP_DEFLATED, compresslevel=6) as archive:
        for name in sorted({*files, "README.md"}):
            entry = zipfile.ZipInfo(f"{run}/{name}", _TIME)
            entry.compress_type, entry.external_attr, entry.create_system = zipfile.ZIP_DEFLATED, _MODE, 3
            # Tables of samples can be larger than the memory of a laptop.
            with archive.open(entry, "w", force_zip64=True) as stream:
                if name in files:
                    with files[name].open("rb") as source:
                        while block := source.read(1 << 20):
                            stream.write(block)
                else:
                    stream.write(readme.encode())
