# ΔP of the samples of one anchor.


rule delta_p:
    input:
        rules.anchors.output,
    output:
        f"{RESULTS}/delta_p/{SERIES}/{{anchor}}.parquet",
    log:
        f"{RESULTS}/logs/delta_p/{SERIES}/{{anchor}}.log",
    benchmark:
        f"{RESULTS}/benchmarks/delta_p/{SERIES}/{{anchor}}.tsv"
    params:
        settings=lambda wildcards: as_json(RUN.delta_p_stage(wildcards.anchor)),
        code=code("delta_p"),
    resources:
        mem_mb=growing(4000),
        runtime=growing(30),
    group:
        "analysis.{model}.{dataset}.{extractor}"
    conda:
        "../../envs/deltap.yaml"
    message:
        submitted("ΔP of {wildcards.model} on {wildcards.dataset}, {wildcards.anchor}")
    shell:
        "python \"$SCRIPTS/delta_p.py\" --settings {params.settings:q} --anchors {input:q} --out {output:q} --log {log:q}"
