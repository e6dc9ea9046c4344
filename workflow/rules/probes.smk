# One probe for each site, position and layer, trained on the clean activations of the train split.


rule probes:
    input:
        labels=rules.labels.output,
        clean=activations("clean"),
    output:
        probes=f"{RESULTS}/probes/{SERIES}.safetensors",
        scores=f"{RESULTS}/probes/{SERIES}.parquet",
    log:
        f"{RESULTS}/logs/probes/{SERIES}.log",
    benchmark:
        f"{RESULTS}/benchmarks/probes/{SERIES}.tsv"
    params:
        settings=as_json(RUN.probes_stage()),
        code=code("probes"),
    threads: 2
    resources:
        mem_mb=growing(2000),
        runtime=growing(120),
    group:
        "analysis.{model}.{dataset}.{extractor}"
    conda:
        "../../envs/deltap.yaml"
    message:
        submitted("Training the probes of {wildcards.model} on {wildcards.dataset}")
    shell:
        "python \"$SCRIPTS/probes.py\" --settings {params.settings:q} --labels {input.labels:q} --clean {input.clean:q}"
        " --jobs {threads} --out {output.probes:q} --scores {output.scores:q} --log {log:q}"
