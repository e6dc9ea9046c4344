# What the published figure claims, tested on this run's numbers.


rule verdict:
    input:
        f"{RESULTS}/delta_p.parquet",
    output:
        report=f"{RESULTS}/verdict.md",
        json=f"{RESULTS}/verdict.json",
    log:
        f"{RESULTS}/logs/verdict.log",
    benchmark:
        f"{RESULTS}/benchmarks/verdict.tsv"
    params:
        settings=as_json(RUN.verdict_stage()),
        code=code("verdict"),
    resources:
        mem_mb=4000,
        runtime=30,
    localrule: True
    conda:
        "../../envs/deltap.yaml"
    message:
        "Testing the claims"
    shell:
        "python \"$SCRIPTS/verdict.py\" --table {input:q} --settings {params.settings:q} --out {output.report:q}"
        " --json {output.json:q} --log {log:q}"
