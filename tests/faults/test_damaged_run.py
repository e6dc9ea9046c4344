"""A run whose files were damaged says so, and the command that it names brings back the same tables."""

import re
import subprocess

import pytest
import running

from deltap.files import file_sha256

SERIES = "tiny-base/capitals/auto"
DAMAGED = (
    "questions/capitals.parquet",
    f"inference/{SERIES}/0/clean.attn.exact_answer_last.safetensors",
    f"labels/{SERIES}.parquet",
    f"probes/{SERIES}.safetensors",
    f"anchors/{SERIES}.parquet",
    "delta_p.parquet",
)


@pytest.fixture(scope="module")
def finished(configfile):
    running.snakemake(configfile.parent, configfile)
    return configfile.parent / "results" / "mine"


def tables(results):
    return {path.name: file_sha256(path) for path in [*results.glob("*.parquet"), results / "verdict.json"]}


@pytest.mark.parametrize("name", DAMAGED)
def test_the_command_that_a_message_names_brings_back_the_same_tables(name, finished, configfile):
    folder, path, before = configfile.parent, finished / name, tables(finished)
    # What a failed job left behind is removed, and made again only where something needs it.
    running.snakemake(folder, configfile, str(path.relative_to(folder)), "all")
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    failed = running.snakemake(folder, configfile, check=False)
    assert "Traceback" not in failed.stdout
    if failed.returncode == 0:  # Snakemake made the file anew before anything read it
        assert tables(finished) == before
        return
    said = re.search(
        rf"error: (\S*{re.escape(name)}): damaged, .*; make it again: (rm \S+), then snakemake", failed.stdout
    )
    assert said, failed.stdout
    subprocess.run(said[2], shell=True, check=True, cwd=folder)
    assert not path.exists()
    running.snakemake(folder, configfile)
    assert tables(finished) == before
