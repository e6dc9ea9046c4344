# What a model says, without looking into it. Only needed where a language model looks for exact tokens before activations
# are read, or where several extractors need the answers; else the inference job asks.


rule answers:
    input:
        questions=rules.questions.output,
        model=lambda wildcards: RUN.model_inputs(wildcards.model),
        given=SETTINGS.given.answers,
    output:
        f"{RESULTS}/answers/{{model}}/{{dataset}}/{{shard}}.parquet",
    log:
        f"{RESULTS}/logs/answers/{{model}}/{{dataset}}/{{shard}}.log",
    benchmark:
        f"{RESULTS}/benchmarks/answers/{{model}}/{{dataset}}/{{shard}}.tsv"
    params:
        settings=lambda wildcards: as_json(RUN.answers_stage(wildcards.model, wildcards.dataset)),
        launch=lambda wildcards: RUN.launch_options(wildcards.model),
        model=lambda wildcards: RUN.model_directory(wildcards.model),
        given=option("--given-answers", SETTINGS.given.answers),
        contents=lambda wildcards: contents(RUN.model_inputs(wildcards.model), SETTINGS.given.answers),
        code=code("answers"),
    threads: lambda wildcards: RUN.models[wildcards.model].cores
    resources:
        **model_job(),
    conda:
        "../../envs/deltap.yaml"
    message:
        submitted(
            "Asking {wildcards.model} the questions of {wildcards.dataset} (shard {wildcards.shard}), answers only"
            " [{resources.gpu} GPUs]"
        )
    shell:
        "python \"$SCRIPTS/launch.py\" {params.launch} --log {log:q} -- \"$SCRIPTS/answers.py\""
        " --settings {params.settings:q} --questions {input.questions:q}"
        " --model {params.model:q} {params.given:q} --shard {wildcards.shard} --store \"$STORE\" --out {output:q}"
        " --log {log:q}"
