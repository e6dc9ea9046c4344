# Whose verdict flips under knockout: the probes on both passes of the test samples.


rule anchors:
    input:
        labels=rules.labels.output,
        probes=rules.probes.output.probes,
        scores=rules.probes.output.scores,
        clean=activations("clean"),
        knockout=activations("knockout"),
    output:
        f"{RESULTS}/anchors/{SERIES}.parquet",
    log:
        f"{RESULTS}/logs/anchors/{SERIES}.log",
    benchmark:
        f"{RESULTS}/benchmarks/anchors/{SERIES}.tsv"
    params:
        code=code("anchors"),
    resources:
        mem_mb=growing(2000),
        runtime=growing(60),
    group:
        "analysis.{model}.{dataset}.{extractor}"
    conda:
        "../../envs/deltap.yaml"
    message:
        submitted("Finding the anchors of {wildcards.model} on {wildcards.dataset}")
    shell:
        "python \"$SCRIPTS/anchors.py\" --labels {input.labels:q} --probes {input.probes:q} --scores {input.scores:q}"
        " --clean {input.clean:q} --knockout {input.knockout:q} --out {output:q} --log {log:q}"
