# The run's tables: every model and data set in one file, the mean ΔP that figures are drawn from, and two reports.


# Of each series the rows of both anchors, then those of its controls: they stand together in the merged table.
PARTS = {
    "delta_p": [
        part
        for series in every_series(SERIES)
        for part in (
            *(f"{RESULTS}/delta_p/{series}/{anchor}.parquet" for anchor in SETTINGS.anchors),
            *([f"{RESULTS}/controls/{series}/delta_p.parquet"] if SETTINGS.controls else []),
        )
    ],
    "anchors": every_series(f"{RESULTS}/anchors/{SERIES}.parquet"),
    "probes": every_series(f"{RESULTS}/probes/{SERIES}.parquet"),
    "answers": every_series(f"{RESULTS}/labels/{SERIES}.parquet"),
}
if SETTINGS.controls:
    PARTS["controls"] = every_series(f"{RESULTS}/controls/{SERIES}/controls.parquet")


rule merge:
    input:
        lambda wildcards: PARTS[wildcards.table],
    output:
        f"{RESULTS}/{{table}}.parquet",
    log:
        f"{RESULTS}/logs/merge/{{table}}.log",
    benchmark:
        f"{RESULTS}/benchmarks/merge/{{table}}.tsv"
    params:
        metadata=literal(json.dumps({"labels": RUN.labels(), "anchors": SETTINGS.anchors}, ensure_ascii=False)),
        code=code("merge"),
    wildcard_constraints:
        table="|".join(PARTS),
    resources:
        mem_mb=4000,
        runtime=30,
    localrule: True
    conda:
        "../../envs/deltap.yaml"
    message:
        "Merging the table {wildcards.table}"
    shell:
        "python \"$SCRIPTS/merge.py\" --table {wildcards.table} --parts {input:q} --metadata {params.metadata:q}"
        " --out {output:q} --log {log:q}"


rule summarise:
    input:
        f"{RESULTS}/delta_p.parquet",
    output:
        parquet=f"{RESULTS}/delta_p_summary.parquet",
        csv=report(
            f"{RESULTS}/delta_p_summary.csv",
            caption="../report/delta_p_summary.rst",
            category="Tables",
            labels={"table": "Mean ΔP (CSV)"},
        ),
    log:
        f"{RESULTS}/logs/summarise.log",
    benchmark:
        f"{RESULTS}/benchmarks/summarise.tsv"
    params:
        settings=as_json(SETTINGS.bootstrap),
        code=code("summarise"),
    resources:
        mem_mb=growing(4000),
        runtime=growing(30),
    conda:
        "../../envs/deltap.yaml"
    message:
        submitted("Means and intervals of ΔP")
    shell:
        "python \"$SCRIPTS/summarise.py\" --table {input:q} --settings {params.settings:q} --out {output.parquet:q}"
        " --csv {output.csv:q} --log {log:q}"


rule samples:
    input:
        answers=f"{RESULTS}/answers.parquet",
        questions=expand(rules.questions.output, dataset=RUN.datasets),
    output:
        table=f"{RESULTS}/samples.parquet",
        report=f"{RESULTS}/samples.md",
    log:
        f"{RESULTS}/logs/samples.log",
    benchmark:
        f"{RESULTS}/benchmarks/samples.tsv"
    params:
        code=code("samples"),
    resources:
        mem_mb=4000,
        runtime=30,
    localrule: True
    conda:
        "../../envs/deltap.yaml"
    message:
        "How every question was answered"
    shell:
        "python \"$SCRIPTS/samples.py\" --answers {input.answers:q} --questions {input.questions:q}"
        " --out {output.table:q} --report {output.report:q} --log {log:q}"


rule extraction:
    input:
        answers=f"{RESULTS}/answers.parquet",
        questions=expand(rules.questions.output, dataset=RUN.datasets),
    output:
        table=f"{RESULTS}/extraction.parquet",
        fields=f"{RESULTS}/extraction_fields.parquet",
        report=f"{RESULTS}/extraction.md",
    log:
        f"{RESULTS}/logs/extraction.log",
    benchmark:
        f"{RESULTS}/benchmarks/extraction.tsv"
    params:
        code=code("extraction"),
    resources:
        mem_mb=4000,
        runtime=30,
    localrule: True
    conda:
        "../../envs/deltap.yaml"
    message:
        "How good the exact tokens are"
    shell:
        "python \"$SCRIPTS/extraction.py\" --answers {input.answers:q} --questions {input.questions:q}"
        " --out {output.table:q} --fields {output.fields:q} --report {output.report:q} --log {log:q}"


rule tables:
    input:
        expand(f"{RESULTS}/{{table}}.parquet", table=PARTS),
        rules.summarise.output,
        rules.samples.output,
        rules.extraction.output,
