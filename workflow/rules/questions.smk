# Each data set becomes one table of questions with their split.


rule questions:
    input:
        source=lambda wildcards: RUN.question_file(wildcards.dataset),
        ids=lambda wildcards: RUN.datasets[wildcards.dataset].ids_file or [],
    output:
        f"{RESULTS}/questions/{{dataset}}.parquet",
    log:
        f"{RESULTS}/logs/questions/{{dataset}}.log",
    benchmark:
        f"{RESULTS}/benchmarks/questions/{{dataset}}.tsv"
    params:
        settings=lambda wildcards: as_json(RUN.questions_stage(wildcards.dataset)),
        manifest=lambda wildcards, input: ["--manifest", input.source] if RUN.datasets[wildcards.dataset].hub else [],
        contents=lambda wildcards: contents(
            RUN.question_file(wildcards.dataset), RUN.datasets[wildcards.dataset].ids_file or []
        ),
        code=code("questions"),
    resources:
        mem_mb=4000,
        runtime=30,
    localrule: True
    conda:
        "../../envs/deltap.yaml"
    message:
        "Reading the questions of {wildcards.dataset}"
    shell:
        "python \"$SCRIPTS/questions.py\" --settings {params.settings:q} {params.manifest:q} --out {output:q}"
        " --log {log:q}"
