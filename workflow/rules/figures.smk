# Figures, drawn from finished tables alone: one job for each configured figure, which draws all its files.


# Of the formats of a figure, the report shows the interactive one and the first of the others in this order.
SHOWN = ("png", "svg", "pdf")
TITLES = {
    "delta_p": "ΔP against layer",
    "auroc": "AUROC of the probes",
    "flip_rate": "Flip rate",
    "delta_p_distribution": "Distribution of ΔP",
    "groups": "Groups",
    "exclusions": "Exclusions",
}


def figure_files(name, job):
    """Return the files of a figure, of which those that the report shows are marked."""
    return [
        in_report(name, entry, path) if kind in ("html", shown) else path
        for stem, entry in job.stage.figures.items()
        for formats in [entry.formats or job.stage.formats]
        for shown in [next((kind for kind in SHOWN if kind in formats), None)]
        for kind in formats
        for path in [f"{RESULTS}/figures/{stem}.{kind}"]
    ]


def in_report(name, entry, path):
    """Return a figure's file with its place in the report."""
    chosen = {key: getattr(entry, key, None) for key in ("site", "position", "grouping", "extractor")}
    return report(
        path,
        caption=f"../report/{'delta_p_interactive' if path.endswith('.html') else entry.kind}.rst",
        category="Figures",
        subcategory=TITLES[entry.kind],
        labels={"figure": name, **{key: value for key, value in chosen.items() if value}},
    )


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
            settings=as_json(JOB.stage),
            out=lambda wildcards, output: Path(output[0]).parent,
            code=code("plot"),
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
# figures are no outputs, so that they are drawn whenever they are asked for. Without either, the lock of the run that is
# in progress does not concern this rule.
rule figures_partial:
    log:
        f"{RESULTS}/logs/figures_partial.log",
    params:
        settings=as_json(RUN.partial_figures()),
        parts=[part for table in ("anchors", "probes", "answers") for part in PARTS[table] if Path(part).exists()],
        expected=len(PARTS["anchors"]),
        labels=json.dumps(RUN.labels(), ensure_ascii=False),
        out=f"{RESULTS}/figures_partial",
    threads: 2
    conda:
        "../../envs/deltap.yaml"
    message:
        "Drawing what is finished"
    shell:
        "python \"$SCRIPTS/plot.py\" --settings {params.settings:q} --table {params.parts:q} --labels {params.labels:q}"
        " --expected {params.expected} --jobs {threads} --out {params.out:q} --log {log:q}"
