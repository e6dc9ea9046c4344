"""Another model under the name of one: what depends on it is computed again, and nothing is mixed."""

import json
import os
import shutil

import running

import tiny
from deltap.files import file_sha256

ANCHORS, ANSWERS = "results/mine/anchors.parquet", "results/mine/answers.parquet"


def test_another_tokenizer_under_the_same_path_gives_the_tables_of_a_fresh_run(tmp_path):
    """As a model update does that splits words otherwise; the files are older than the run."""
    config = running.labelled(running.project(tmp_path / "project"), models=["tiny-base"], datasets=["capitals"])
    used, fresh = tmp_path / "used", tmp_path / "fresh"
    for folder in (used, fresh):
        folder.mkdir()
    running.snakemake(used, config, ANCHORS)
    before = file_sha256(used / ANCHORS)
    tokenizer = config.parent / "base" / "tokenizer.json"
    value = json.loads(tokenizer.read_text(encoding="utf-8"))
    value["model"]["merges"] = value["model"]["merges"][:-20]
    tokenizer.write_text(json.dumps(value), encoding="utf-8")
    os.utime(tokenizer, (1, 1))
    said = running.snakemake(used, config, ANCHORS).stdout
    assert "Params have changed since last execution" in said
    running.snakemake(fresh, config, ANCHORS)
    assert file_sha256(used / ANCHORS) == file_sha256(fresh / ANCHORS) != before


def test_models_that_were_changed_in_between_are_not_merged(tmp_path):
    """Snakemake is told not to look; the merge looks."""
    whole = running.project(tmp_path)
    one, both = (
        running.labelled(whole, models=["tiny-base"], datasets=datasets)
        for datasets in (["capitals"], ["capitals", "rulers"])
    )
    running.snakemake(tmp_path, one, ANSWERS)
    shutil.rmtree(tmp_path / "base")
    tiny.save(tmp_path / "base", "llama", seed=3)
    for path in (tmp_path / "base").iterdir():
        os.utime(path, (1, 1))
    failed = running.snakemake(tmp_path, both, ANSWERS, "--rerun-triggers", "input", "code", check=False)
    assert failed.returncode
    assert "were made from different models called 'tiny-base': model_revision is" in failed.stdout
    assert "snakemake --forcerun inference" in failed.stdout
