# Which answers are truthful.


rule judge:
    input:
        answers=expand(
            f"{RESULTS}/inference/{SERIES}/{{shard}}/answers.parquet",
            shard=range(SETTINGS.inference.shards),
            allow_missing=True,
        ),
        model=LLM["inputs"],
    output:
        f"{RESULTS}/judgements/{SERIES}.parquet",
    log:
        f"{RESULTS}/logs/judge/{SERIES}.log",
    benchmark:
        f"{RESULTS}/benchmarks/judge/{SERIES}.tsv"
    params:
        settings=lambda wildcards: as_json(RUN.judge_stage()),
        launch=LLM["launch"],
        model=LLM["directory"],
        contents=contents(LLM["inputs"]),
        code=code("judge"),
    threads: LLM["threads"]
    resources:
        **LLM["resources"],
    conda:
        "../../envs/deltap.yaml"
    message:
        submitted(
            "Judging the answers of {wildcards.model} to {wildcards.dataset} by a language model"
            " [{resources.gpu} GPUs]"
        )
    shell:
        "python \"$SCRIPTS/launch.py\" {params.launch} --log {log:q} -- \"$SCRIPTS/judge.py\" --settings {params.settings:q} --answers {input.answers:q} {params.model:q}"
        " --cache \"$REPLIES\" --out {output:q} --log {log:q}"


rule labels:
    input:
        answers=rules.judge.input.answers,
        judgements=rules.judge.output if SETTINGS.labels.match == "llm" else [],
        given=SETTINGS.given.labels,
    output:
        f"{RESULTS}/labels/{SERIES}.parquet",
    log:
        f"{RESULTS}/logs/labels/{SERIES}.log",
    benchmark:
        f"{RESULTS}/benchmarks/labels/{SERIES}.tsv"
    params:
        settings=as_json(RUN.labels_stage()),
        more=lambda wildcards, input: [
            *option("--judgements", input.judgements),
            *option("--given-labels", SETTINGS.given.labels),
        ],
        contents=contents(SETTINGS.given.labels),
        code=code("labels"),
    resources:
        mem_mb=growing(4000),
        runtime=growing(30),
    group:
        "analysis.{model}.{dataset}.{extractor}"
    conda:
        "../../envs/deltap.yaml"
    message:
        submitted("Labelling the answers of {wildcards.model} to {wildcards.dataset}")
    shell:
        "python \"$SCRIPTS/labels.py\" --settings {params.settings:q} --answers {input.answers:q} {params.more:q}"
        " --out {output:q} --log {log:q}"
