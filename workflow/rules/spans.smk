# Exact tokens by a language model, where one is configured: its own engine's job, or requests to a server.


# What the language model is and needs; a server needs nothing of ours.
LLM = {
    "inputs": RUN.model_inputs(SETTINGS.llm.model) if RUN.llm else [],
    "directory": option("--model", [RUN.model_directory(SETTINGS.llm.model)]) if RUN.llm else [],
    "launch": RUN.launch_options(SETTINGS.llm.model) if RUN.llm else [],
    "threads": RUN.llm.cores if RUN.llm else 1,
    "resources": (
        model_job(lambda wildcards: RUN.llm)
        if RUN.llm
        else {"mem_mb": growing(4000), "runtime": growing(240), "gpu": 0}
    ),
}


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
