"""A run whose files were damaged says so, and the command that it names brings back the same tables."""

import re
import shutil
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
def whole(configfile):
    """The folder of a finished run."""
    running.snakemake(configfile.parent, configfile)
    return configfile.parent


@pytest.fixture
def folder(whole, tmp_path):
    """The same once more, files as old as they were: what one case damages and mends is not in the next one's way."""
    return shutil.copytree(whole, tmp_path / "run")


def tables(results):
    return {path.name: file_sha256(path) for path in [*results.glob("*.parquet"), results / "verdict.json"]}


@pytest.mark.parametrize("name", DAMAGED)
def test_the_command_that_a_message_names_brings_back_the_same_tables(name, folder, configfile):
    finished = folder / "results" / "mine"
    path, before = finished / name, tables(finished)
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    failed = running.snakemake(folder, configfile, check=False)
    assert failed.returncode
    assert "Traceback" not in failed.stdout
    said = re.search(
        rf"error: (\S*{re.escape(name)}): damaged, .*; make it again: (rm \S+), then snakemake", failed.stdout
    )
    assert said, failed.stdout
    subprocess.run(said[2], shell=True, check=True, cwd=folder)
    assert not path.exists()
    running.snakemake(folder, configfile)
    assert tables(finished) == before
