# Exact tokens by a language model, where one is configured: its own engine's job, or requests to a server.


# What the language model is and needs; a server needs nothing of ours.
LLM = {
    "inputs": RUN.model_inputs(SETTINGS.llm.model) if RUN.llm else [],
    "directory": option("--model", [RUN.model_directory(SETTINGS.llm.model)]) if RUN.llm else [],
    "threads": RUN.llm.threads if RUN.llm else 1,
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
        model=LLM["directory"],
        given=option("--given-spans", SETTINGS.given.spans),
        code=code("spans"),
    threads: LLM["threads"]
    resources:
        mem_mb=growing(LLM["mem_mb"]),
        runtime=growing(LLM["runtime"]),
        gpu=LLM["gpu"],
        slurm_partition=placed("partition", lambda wildcards: RUN.llm),
        slurm_account=placed("account", lambda wildcards: RUN.llm),
    conda:
        "../../envs/deltap.yaml"
    message:
        submitted(
            "Finding the exact tokens of {wildcards.model} on {wildcards.dataset} by a language model"
            " [{resources.gpu} GPUs]"
        )
    shell:
        "python \"$SCRIPTS/spans.py\" --settings {params.settings:q} --questions {input.questions:q}"
        " --answers {input.answers:q} {params.given:q} {params.model:q} --cache \"$REPLIES\" --out {output:q} --log {log:q}"
