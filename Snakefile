"""deltap: where a language model's internal sense of truth comes from, measured by attention knockout.

    snakemake -n                                     the paper's run (config/config.yaml), shown only
    snakemake download -c1                           what needs a network: models and question sets of the hub
    snakemake plan -c1                               what it costs: FLOPs, GPU hours, memory, disk
    snakemake --configfile config/demo.yaml -c2      the demo: a small model, bundled questions
    snakemake --configfile mine.yaml -c8             your own
    snakemake figures -c2                            the configured figures, and what they need
    snakemake figures_partial --nolock -c1           what is finished of a run that still runs
    snakemake report -c1                             everything to read, as one HTML file
    snakemake export -c1                             everything to draw figures from, as one archive

The stages are in workflow/rules, one file each, in the order of the flow; the algorithms are in workflow/deltap.
"""

import json
import re
import shlex
import sys
from pathlib import Path

from snakemake.exceptions import WorkflowError
from snakemake.utils import min_version

min_version("9.0")

BASE = Path(workflow.basedir)
SCRIPTS = BASE / "scripts"
sys.path.insert(0, str(BASE / "workflow"))

from deltap import lock, slurm

if slurm.is_second_copy():
    print("A second copy of the same Slurm job: it leaves everything to the first.", file=sys.stderr)
    sys.exit(0)

from deltap.errors import DeltapError
from deltap.code import code_digest
from deltap.files import contents as file_contents, digest
from deltap.manifest import MANIFEST
from deltap.run import Run
from deltap.yaml_file import read_yaml


configfile: BASE / "config" / "config.yaml"


report: "workflow/report/workflow.rst"


try:
    for path in workflow.configfiles:
        read_yaml(Path(path))  # Snakemake takes the last of two keys, and 010 for 8
    RUN = Run(config, BASE / "config")
    RUN.check_inputs()
    FIGURES = RUN.figure_jobs()
except DeltapError as error:
    raise WorkflowError(str(error)) from None

# Snakemake says that the folder is locked, and not by whom.
SNAKEMAKE = Path(workflow.workdir_init) / ".snakemake"
if workflow.is_main_process and (HOLDER := lock.holder(SNAKEMAKE)):
    print(HOLDER, file=sys.stderr)

SETTINGS = RUN.settings
RESULTS = RUN.results
# The part of every path that a model, a data set and an extractor of answers share.
SERIES = "{model}/{dataset}/{extractor}"

# What every job's shell knows. Paths that decide nothing are here and not in params, where a change would rerun jobs.
ENVIRONMENT = {
    "BASE": shlex.quote(str(BASE)),
    "SCRIPTS": shlex.quote(str(SCRIPTS)),
    "PYTHON": shlex.quote(sys.executable),
    "STORE": shlex.quote(f"{SETTINGS.paths.work}/chunks"),
    "REPLIES": shlex.quote(f"{SETTINGS.paths.work}/replies"),
    # Only downloads may ask the hub, and even they not where the user says so.
    "OFFLINE": "${HF_HUB_OFFLINE:-0}",
    "HF_HUB_OFFLINE": "1",
    "NOT_DOWNLOADED": shlex.quote(" ".join(map(str, RUN.not_downloaded()))),
    "PYTHONPATH": f"{shlex.quote(str(BASE / 'workflow'))}${{PYTHONPATH:+:$PYTHONPATH}}",
}
# Jobs run with the Python that runs snakemake, unless conda or a container brings one.
if not workflow.deployment_settings.deployment_method:
    ENVIRONMENT["PATH"] = f"{shlex.quote(str(Path(sys.executable).parent))}:$PATH"
EXPORTS = "".join(f"export {name}={value}; " for name, value in ENVIRONMENT.items())
shell.prefix(f"set -euo pipefail; {EXPORTS}".replace("{", "{{").replace("}", "}}"))


wildcard_constraints:
    model="|".join(RUN.models),
    dataset="|".join(RUN.datasets),
    extractor="|".join(SETTINGS.extractors),
    anchor="|".join(SETTINGS.anchors),
    shard=r"\d+",


include: "workflow/rules/common.smk"
include: "workflow/rules/download.smk"
include: "workflow/rules/questions.smk"
include: "workflow/rules/plan.smk"
include: "workflow/rules/answers.smk"
include: "workflow/rules/spans.smk"
include: "workflow/rules/inference.smk"
include: "workflow/rules/labels.smk"
include: "workflow/rules/probes.smk"
include: "workflow/rules/anchors.smk"
include: "workflow/rules/delta_p.smk"
include: "workflow/rules/interventions.smk"
include: "workflow/rules/controls.smk"
include: "workflow/rules/tables.smk"
include: "workflow/rules/verdict.smk"
include: "workflow/rules/figures.smk"
include: "workflow/rules/report.smk"


localrules:
    all,
    tables,
    figures,
    figures_partial,
    download,
    plan,


rule all:
    default_target: True
    input:
        rules.tables.input,
        rules.verdict.output,
        rules.controls_report.output if SETTINGS.controls else [],
        rules.figures.input,


# A Snakemake that was killed leaves its jobs in Slurm's queue.
onstart:
    lock.note_holder(SNAKEMAKE)
    asked = set(workflow.dag_settings.targets)
    if not asked or asked - {"figures_partial", "plan", "download"}:
        slurm.wait_for_jobs_of(Path(workflow.workdir_init), lambda text: print(text, file=sys.stderr, flush=True))


onsuccess:
    drawn = [figure for job in FIGURES.values() if (figure := Path(f"{RESULTS}/figures/{job.files[0]}")).exists()]
    if drawn:
        print(f"\nFigures: {' '.join(map(str, drawn))}")
        print(f"Tables:  {RESULTS}/*.parquet, {RESULTS}/delta_p_summary.csv")
        reports = [Path(f"{RESULTS}/{name}.md") for name in ("verdict", "controls", "samples", "extraction")]
        print(f"To read: {', '.join(str(report) for report in reports if report.exists())}")
