# Exact tokens by a language model, where one is configured: its own engine's job, or requests to a server.


# What the language model is and needs; a server needs nothing of ours.
LLM = {
    "inputs": RUN.model_inputs(SETTINGS.llm.model) if RUN.llm else [],
    "directory": option("--model", [RUN.model_directory(SETTINGS.llm.model)]) if RUN.llm else [],
    "launch": RUN.launch_options(SETTINGS.llm.model) if RUN.llm else [],
    "threads": RUN.llm.cores if RUN.llm else 1,
    "mem_mb": RUN.llm.memory_mb if RUN.llm else 4000,
    "runtime": RUN.llm.walltime_minutes if RUN.llm else 240,
    "gpu": RUN.llm.gpus if RUN.llm else 0,
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
        mem_mb=LLM["mem_mb"],
        runtime=LLM["runtime"],
        gpu=LLM["gpu"],
    conda:
        "../../envs/deltap.yaml"
    message:
        "Finding the exact tokens of {wildcards.model} on {wildcards.dataset} by a language model"
    shell:
        "python \"$SCRIPTS/launch.py\" {params.launch} --log {log:q} -- \"$SCRIPTS/spans.py\" --settings {params.settings:q} --questions {input.questions:q}"
        " --answers {input.answers:q} {params.given:q} {params.model:q} --cache \"$REPLIES\" --out {output:q} --log {log:q}"
