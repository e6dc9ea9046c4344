# Which answers are truthful.


rule labels:
    input:
        expand(
            f"{RESULTS}/inference/{SERIES}/{{shard}}/answers.parquet",
            shard=range(SETTINGS.inference.shards),
            allow_missing=True,
        ),
    output:
        f"{RESULTS}/labels/{SERIES}.parquet",
    log:
        f"{RESULTS}/logs/labels/{SERIES}.log",
    benchmark:
        f"{RESULTS}/benchmarks/labels/{SERIES}.tsv"
    params:
        settings=as_json(RUN.labels_stage()),
        code=code("labels"),
    resources:
        mem_mb=growing(4000),
        runtime=growing(30),
    group:
        "analysis.{model}.{dataset}.{extractor}"
    conda:
        "../../envs/deltap.yaml"
    message:
        "Labelling the answers of {wildcards.model} to {wildcards.dataset} " + ASKS
    shell:
        "python \"$SCRIPTS/labels.py\" --settings {params.settings:q} --answers {input:q} --out {output:q} --log {log:q}"
