# Figures, drawn from the summary alone.


rule figure:
    input:
        rules.summarise.output.parquet,
    output:
        expand(f"{RESULTS}/figures/{{figure}}.{{format}}", format=SETTINGS.formats, allow_missing=True),
    log:
        f"{RESULTS}/logs/figures/{{figure}}.log",
    benchmark:
        f"{RESULTS}/benchmarks/figures/{{figure}}.tsv"
    params:
        settings=lambda wildcards: as_json(FIGURES[wildcards.figure]),
        code=code("plot_delta_p"),
        anchors=SETTINGS.anchors,
    wildcard_constraints:
        figure="|".join(FIGURES) or "none",
    resources:
        mem_mb=2000,
        runtime=10,
    localrule: True
    conda:
        "../../envs/deltap.yaml"
    message:
        "Drawing {wildcards.figure}"
    shell:
        "python \"$SCRIPTS/plot_delta_p.py\" --table {input:q} --settings {params.settings:q} --anchors {params.anchors}"
        " --out {output:q} --log {log:q}"


rule figures:
    input:
        expand(rules.figure.output, figure=FIGURES),
