# Exact tokens by a language model, where one is configured: its own engine's job, or requests to a server.


rule spans:
    input:
        questions=rules.questions.output,
        answers=expand(rules.answers.output, shard=range(SETTINGS.inference.shards), allow_missing=True),
        model=LLM["inputs"],
        given=SETTINGS.given.spans,
    output:
        f"{RESULTS}/spans/{SERIES}.parquet",
    log:
        f"{RESULTS}/logs/spans/{SERIES}.log",
    benchmark:
        f"{RESULTS}/benchmarks/spans/{SERIES}.tsv"
    params:
        settings=lambda wildcards: as_json(
            RUN.spans_stage(wildcards.model, wildcards.dataset, wildcards.extractor)
        ),
        launch=LLM["launch"],
        model=LLM["directory"],
        given=option("--given-spans", SETTINGS.given.spans),
        contents=contents(LLM["inputs"], SETTINGS.given.spans),
        code=code("spans"),
    threads: LLM["threads"]
    resources:
        **LLM["resources"],
    conda:
        "../../envs/deltap.yaml"
    message:
        submitted(
            "Finding the exact tokens of {wildcards.model} on {wildcards.dataset} by a language model"
            " [{resources.gpu} GPUs]"
        )
    shell:
        "python \"$SCRIPTS/launch.py\" {params.launch} --log {log:q} -- \"$SCRIPTS/spans.py\" --settings {params.settings:q} --questions {input.questions:q}"
        " --answers {input.answers:q} {params.given:q} {params.model:q} --cache \"$REPLIES\" --out {output:q} --log {log:q}"
