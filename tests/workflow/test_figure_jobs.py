"""Figures of a run: from its own tables, from a folder of tables, and of what is finished."""

import shutil
import subprocess
import sys

import pytest
import running
from running import ROOT, changed, planned, snakemake

pytestmark = pytest.mark.xdist_group("workflow")  # one run serves these files
EVERY = ["delta_p", "delta_p_interactive", "auroc", "flip_rate", "delta_p_distribution", "groups", "exclusions"]


def drawn(folder):
    return sorted(path.name for path in folder.iterdir())


def files(names, formats=("pdf", "png", "svg"), mark=""):
    """Return the names of the files that figures become."""
    kinds = {name: ["html"] if name == "delta_p_interactive" else formats for name in names}
    return sorted(f"{name}{mark}.{kind}" for name in names for kind in kinds[name])


def test_every_kind_of_figure_is_drawn_from_the_tables_of_another_place_without_a_model(configfile, finished, tmp_path):
    tables = tmp_path / "elsewhere"
    tables.mkdir()
    for table in finished.glob("*.parquet"):
        shutil.copy(table, tables)
    # Nothing else of the run is there, and what loads a model cannot be imported.
    for name in ("torch", "transformers", "sklearn", "datasets"):
        (tmp_path / f"{name}.py").write_text("raise ImportError('not for figures')")
    mine = changed(configfile, figures=EVERY, figure_tables=str(tables))
    command = [sys.executable, "-m", "snakemake", "--snakefile", str(ROOT / "Snakefile"), "--cores", "2", "figures"]
    done = subprocess.run(
        [*command, "--directory", str(tmp_path / "new"), "--configfile", str(mine)],
        env={"PATH": "/usr/bin:/bin", "PYTHONPATH": str(tmp_path)}, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        text=True, timeout=600,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout
    assert set(planned(done.stdout)) == {"figures", *(f"figure_{name}" for name in EVERY)}
    assert drawn(tmp_path / "new/results/mine/figures") == files(EVERY)


def test_a_finished_runs_own_folder_draws_whatever_has_changed(configfile, finished):
    """Another probe would be trained and everything after it computed; the tables that are there are drawn."""
    other = changed(configfile, probe={"regularisation": [0.5]}, figures=["delta_p", "auroc"])
    assert "probes" in planned(snakemake(configfile.parent, other, "figures", "-n").stdout)
    done = snakemake(configfile.parent, other, "figures", "-n", "--config", f"figure_tables={finished}")
    assert set(planned(done.stdout)) <= {"figures", "figure_delta_p", "figure_auroc"}


def test_figures_partial_draws_what_is_finished_and_starts_nothing_else(configfile, finished, tmp_path):
    for part in ("anchors", "probes", "labels"):
        shutil.copytree(finished / part / "tiny-base", tmp_path / "results/mine" / part / "tiny-base")
    mine = changed(configfile, figures=EVERY)
    # A run is in progress: Snakemake's lock, of a file of that run.
    lock = tmp_path / ".snakemake/locks/0.output.lock"
    lock.parent.mkdir(parents=True)
    lock.write_text("results/mine/anchors/tiny-chat/rulers/auto.parquet\n")
    done = snakemake(tmp_path, mine, "figures_partial", "--nolock")
    assert set(planned(done.stdout)) == {"figures_partial"}
    assert drawn(tmp_path / "results/mine/figures_partial") == files(EVERY, mark="_partial")
    for name in files(EVERY, ("svg",), "_partial"):
        text = (tmp_path / "results/mine/figures_partial" / name).read_text(encoding="utf-8")
        assert "Incomplete: 2 of 4 series" in text
        assert "Tiny (base)" in text  # the labels are the configuration's
    assert lock.exists()
    assert not (tmp_path / "results/mine/figures").exists()


def test_figures_partial_without_anything_says_so(configfile, tmp_path):
    snakemake(tmp_path, changed(configfile, figures=["delta_p", "auroc"]), "figures_partial", "--nolock")
    log = (tmp_path / "results/mine/logs/figures_partial.log").read_text(encoding="utf-8")
    assert "nothing is finished yet for delta_p" in log
    assert "nothing is finished yet for auroc" in log


def test_several_tables_stand_in_one_figure(configfile, finished, tmp_path):
    path = running.write_yaml(
        tmp_path / "figures.yaml",
        {"both": {"tables": [{"path": str(finished), "label": label} for label in ("here", "there")],
                  "formats": ["svg"]}},
    )  # fmt: skip
    snakemake(tmp_path, changed(configfile, figures=["both"], figure_files=[str(path)]), "figures")
    text = (tmp_path / "results/mine/figures/both.svg").read_text(encoding="utf-8")
    for model in ("Tiny (base)", "Tiny (chat)"):
        for label in ("here", "there"):
            assert f">{model}, {label}<" in text
