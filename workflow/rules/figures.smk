# Figures, drawn from finished tables alone: one job for each configured figure, which draws all its files.


PLOT_CODE = code("plot")

for NAME, JOB in FIGURES.items():

    rule:
        name:
            f"figure_{NAME}"
        input:
            JOB.tables,
        output:
            figure_files(NAME, JOB),
        log:
            f"{RESULTS}/logs/figures/{NAME}.log",
        benchmark:
            f"{RESULTS}/benchmarks/figures/{NAME}.tsv"
        params:
            settings=literal(as_json(JOB.stage)),
            out=lambda wildcards, output: Path(output[0]).parent,
            code=PLOT_CODE,
        threads: min(4, len(JOB.stage.figures))
        resources:
            mem_mb=2000,
            runtime=10,
        localrule: True
        conda:
            "../../envs/deltap.yaml"
        message:
            f"Drawing {NAME}"
        shell:
            "python \"$SCRIPTS/plot.py\" --settings {params.settings:q} --table {input:q} --jobs {threads}"
            " --out {params.out:q} --log {log:q}"


rule figures:
    input:
        expand(f"{RESULTS}/figures/{{file}}", file=[file for job in FIGURES.values() for file in job.files]),


# What is finished of a run that still runs. The parts are no inputs, lest Snakemake compute what is missing or old; the
# figures are no outputs, so that they are drawn whenever they are asked for:
#     snakemake figures_partial --nolock --cores 1
# Without files of its own this job disturbs nothing; without --nolock Snakemake would, when it ends, remove the lock of
# the run that is in progress.
rule figures_partial:
    log:
        f"{RESULTS}/logs/figures_partial.log",
    params:
        settings=literal(as_json(RUN.partial_figures())),
        parts=[part for table in ("anchors", "probes", "answers", "controls") for part in PARTS.get(table, []) if Path(part).exists()],
        expected=len(PARTS["anchors"]),
        labels=literal(json.dumps(RUN.labels(), ensure_ascii=False)),
        out=f"{RESULTS}/figures_partial",
    threads: 2
    conda:
        "../../envs/deltap.yaml"
    message:
        "Drawing what is finished"
    shell:
        "python \"$SCRIPTS/plot.py\" --settings {params.settings:q} --table {params.parts:q} --labels {params.labels:q}"
        " --expected {params.expected} --jobs {threads} --out {params.out:q} --log {log:q}"
