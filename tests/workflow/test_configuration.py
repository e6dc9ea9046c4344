"""What runs for which configuration, and what is refused before anything runs."""

import os
import resource
import subprocess
import sys

import pytest
from running import ROOT, changed, planned, snakemake, with_definition, with_figure

pytestmark = pytest.mark.xdist_group("workflow")  # one run serves both files


@pytest.fixture
def folder(configfile):
    return configfile.parent


def refused(folder, configfile):
    done = snakemake(folder, configfile, "-n", check=False)
    assert done.returncode != 0
    assert "Traceback" not in done.stdout
    return done.stdout


def test_the_tests_of_a_group_share_a_worker(request):
    """Without a word they would not where pytest-xdist and pytest do not go together, and take twice the time."""
    if getattr(request.config.option, "loadgroup", False):
        assert request.node.nodeid.endswith("@workflow")


def test_the_default_configuration_is_the_papers_run_and_needs_neither_torch_nor_transformers(tmp_path):
    # Modules that fail on import stand before the real ones.
    for name in ("torch", "transformers", "sklearn", "pyarrow", "datasets", "huggingface_hub"):
        (tmp_path / f"{name}.py").write_text("raise ImportError('imported at parse')")
    _, snakemake_alone = timed(tmp_path, "-c", "import snakemake.cli")
    done, seconds = timed(tmp_path, "-m", "snakemake", "--snakefile", str(ROOT / "Snakefile"), "-n")
    assert done.returncode == 0, done.stdout + done.stderr
    jobs = planned(done.stdout + done.stderr)
    assert jobs["fetch_model"] == 2
    assert jobs["fetch_dataset"] == jobs["questions"] == 4
    assert jobs["inference"] == jobs["labels"] == jobs["probes"] == jobs["anchors"] == 2 * 4
    assert jobs["delta_p"] == 2 * 4 * 2
    assert seconds < 3 * snakemake_alone  # 4.4 s against 2.0 s, whatever else the machine does


def timed(folder, *arguments):
    """Return what Python did in ``folder``, whose modules come first, and how many seconds of a processor it took."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(
        [sys.executable, *arguments], cwd=folder, env={**os.environ, "PYTHONPATH": str(folder)}, capture_output=True,
        text=True,
    )  # fmt: skip
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return done, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def test_a_users_configuration_runs_the_users_models_only(folder, configfile):
    done = snakemake(folder, changed(configfile, run="other", models=["tiny-chat"], datasets=["rulers"]), "-n")
    assert planned(done.stdout)["inference"] == 1
    for name in ("qwen3", "popqa", "tiny-base", "capitals"):
        assert name not in done.stdout


def test_shards_and_anchors_follow_the_configuration(folder, configfile):
    other = changed(configfile, run="other", inference={"shards": 3}, anchors=["q_anchored"])
    jobs = planned(snakemake(folder, other, "-n").stdout)
    assert jobs["inference"] == 2 * 2 * 3
    assert jobs["delta_p"] == 2 * 2


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"modles": ["x"]}, "modles: unknown key; did you mean 'models'?"),
        ({"models": ["tiny-bse"]}, "unknown name 'tiny-bse'; did you mean 'tiny-base'?"),
        ({"datasets": ["capitols"]}, "unknown name 'capitols'; did you mean 'capitals'?"),
        ({"models": []}, "models: "),
        ({"datasets": ["rulers", "rulers"]}, "rulers listed twice"),
        ({"questions": {"nmber": 3}}, "questions.nmber: unknown key; did you mean 'number'?"),
        ({"questions": {"number": "many"}}, "questions.number: "),
        ({"questions": {"splits": {"train": 0.9, "validation": 0.4, "test": 0.4}}}, "must be 1, not 1.7"),
        ({"probe": {"kind": "forest"}}, "probe.kind: "),
        ({"figures": ["delta_q"]}, "unknown name 'delta_q'; did you mean 'delta_p'?"),
        ({"inference": {"sites": ["resid"]}}, "'attn' is not measured in this run"),
        ({"figure_tables": "nowhere"}, "figure 'delta_p': nowhere: no such table or folder of tables"),
        ({"run": "../up"}, "run: "),
        ({"model_files": ["nothing.yaml"]}, "nothing.yaml: cannot be read"),
    ],
)
def test_a_wrong_key_or_value_is_refused_by_name(folder, configfile, change, message):
    assert message in refused(folder, changed(configfile, **change))


def test_a_missing_question_file_names_the_nearest(folder, configfile):
    wrong = with_definition(configfile, "dataset", "rulers", path="ruler.jsonl")
    assert "did you mean 'rulers.jsonl'?" in refused(folder, wrong)


def test_a_missing_file_of_ids_names_the_nearest(folder, configfile):
    (folder / "chosen.txt").write_text("1\n")
    wrong = with_definition(configfile, "dataset", "capitals", ids_file="chose.txt")
    assert "did you mean 'chosen.txt'?" in refused(folder, wrong)


def test_a_changed_file_of_ids_chooses_again(configfile):
    folder = configfile.parent
    ids = folder / "changing.txt"
    ids.write_text("".join(f"{number}\n" for number in range(70)))
    chosen = changed(with_definition(configfile, "dataset", "capitals", ids_file=ids.name), run="chosen")
    table = "results/chosen/questions/capitals.parquet"
    snakemake(folder, chosen, table)
    assert planned(snakemake(folder, chosen, table, "-n").stdout) == {}
    ids.write_text("".join(f"{number}\n" for number in range(60)))
    assert planned(snakemake(folder, chosen, table, "-n").stdout) == {"questions": 1}


def test_an_incomplete_model_directory_is_refused(folder, configfile):
    (folder / "empty").mkdir(exist_ok=True)
    assert "no config.json" in refused(
        folder, with_definition(configfile, "model", "tiny-base", source={"path": "empty"})
    )
    assert "no such model directory" in refused(
        folder, with_definition(configfile, "model", "tiny-base", source={"path": "nowhere"})
    )


def test_a_gguf_file_is_a_source_that_is_converted_first(folder, configfile):
    (folder / "small.gguf").write_bytes(b"GGUF and so on")
    gguf = with_definition(configfile, "model", "tiny-base", source={"path": "small.gguf"})
    jobs = planned(snakemake(folder, changed(gguf, run="other", models=["tiny-base"]), "-n").stdout)
    assert jobs["fetch_model"] == 1
    (folder / "text.gguf").write_text("hello")
    for name, message in (("text.gguf", "not a GGUF file"), ("smal.gguf", "GGUF files in its folder: small.gguf")):
        wrong = with_definition(configfile, "model", "tiny-base", source={"path": name})
        assert message in refused(folder, wrong)


def test_a_mistyped_key_of_a_definition_names_file_and_entry(folder, configfile):
    wrong = with_definition(configfile, "model", "tiny-base", dtpye="float32")
    output = refused(folder, wrong)
    assert "tiny-base: dtpye: unknown key; did you mean 'dtype'?" in output
    assert "other-" in output


def test_one_failed_data_set_does_not_stop_the_others(finished, configfile):
    """The profile keeps going; the data set with a broken file fails with file and line, the other one finishes."""
    folder = configfile.parent
    lines = (folder / "rulers.jsonl").read_text().splitlines()
    (folder / "broken.jsonl").write_text("\n".join([*lines[:5], '{"question": "who', *lines[6:12]]) + "\n")
    broken = with_definition(configfile, "dataset", "rulers", path="broken.jsonl")
    profile = str(ROOT / "config" / "profiles" / "local")
    done = snakemake(
        folder, changed(broken, run="half", models=["tiny-base"]), "--workflow-profile", profile, check=False
    )
    assert done.returncode != 0
    assert "broken.jsonl:6" in done.stdout
    assert (folder / "results/half/anchors/tiny-base/capitals/auto.parquet").exists()
    assert not (folder / "results/half/questions/rulers.parquet").exists()


def test_one_class_in_a_split_stops_before_probes_with_counts_and_advice(finished, configfile):
    folder = configfile.parent
    lines = [line.replace('"answer": [', '"answer": ["Nobody"], "x": [') for line in (folder / "rulers.jsonl").open()]
    (folder / "wrong.jsonl").write_text("".join(lines))
    one_class = changed(
        with_definition(configfile, "dataset", "rulers", path="wrong.jsonl"), run="one-class", models=["tiny-base"],
        datasets=["rulers"],
    )  # fmt: skip
    output = snakemake(folder, one_class, check=False).stdout
    assert "the train split has 0 truthful and" in output
    assert "ask more or easier questions" in output


def test_the_workflow_is_lint_clean(folder, configfile):
    assert "Congratulations" in snakemake(folder, configfile, "--lint", check=False).stdout


@pytest.mark.parametrize(
    ("definition", "message"),
    [
        ({"kind": "dleta_p"}, "mine: kind: expected 'delta_p'"),
        ({"kind": "auroc", "grouping": "per_layer"}, "mine: grouping: unknown key"),
        ({"pallete": "tab10"}, "mine: pallete: unknown key; did you mean 'palette'?"),
        ({"models": ["tiny-bse"]}, "figure 'mine': models: 'tiny-bse' is not in this run; did you mean 'tiny-base'?"),
        ({"tables": ["lost.parquet"]}, "lost.parquet: no such table"),
        ({"kind": "groups", "formats": ["html"]}, "html goes with kind: delta_p"),
    ],
)
def test_a_wrong_figure_is_refused_by_name(folder, configfile, definition, message):
    assert message in refused(folder, with_figure(configfile, **definition))
