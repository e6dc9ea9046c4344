# The only stage that loads a language model: answers, exact tokens, clean pass and knockout pass of one shard.


rule inference:
    input:
        questions=rules.questions.output,
        model=lambda wildcards: RUN.model_inputs(wildcards.model),
        generated=lambda wildcards: rules.answers.output if RUN.answers_alone(wildcards.extractor) else [],
        llm_spans=lambda wildcards: rules.spans.output if RUN.asks_llm(wildcards.extractor) else [],
        given=[*SETTINGS.given.answers, *SETTINGS.given.spans],
    output:
        answers=f"{RESULTS}/inference/{SERIES}/{{shard}}/answers.parquet",
        activations=expand(
            f"{RESULTS}/inference/{SERIES}/{{shard}}/{{name}}.{{site}}.{{position}}.safetensors",
            name=("clean", "knockout"),
            site=SETTINGS.inference.sites,
            position=SETTINGS.inference.positions,
            allow_missing=True,
        ),
    log:
        f"{RESULTS}/logs/inference/{SERIES}/{{shard}}.log",
    benchmark:
        f"{RESULTS}/benchmarks/inference/{SERIES}/{{shard}}.tsv"
    params:
        settings=lambda wildcards: as_json(
            RUN.inference_stage(wildcards.model, wildcards.dataset, wildcards.extractor)
        ),
        launch=lambda wildcards: RUN.launch_options(wildcards.model),
        model=lambda wildcards: RUN.model_directory(wildcards.model),
        out=lambda wildcards, output: Path(output.answers).parent,
        found=lambda wildcards, input: [
            *option("--generated", input.generated),
            *option("--llm-spans", input.llm_spans),
            *option("--given-answers", SETTINGS.given.answers),
            *option("--given-spans", SETTINGS.given.spans),
        ],
        contents=lambda wildcards: contents(
            RUN.model_inputs(wildcards.model), SETTINGS.given.answers, SETTINGS.given.spans
        ),
        code=code("inference"),
    threads: lambda wildcards: RUN.models[wildcards.model].cores
    resources:
        **model_job(),
    conda:
        "../../envs/deltap.yaml"
    message:
        submitted(
            "Asking {wildcards.model} the questions of {wildcards.dataset} (shard {wildcards.shard})"
            " [{resources.gpu} GPUs]"
        )
    shell:
        "python \"$SCRIPTS/launch.py\" {params.launch} --log {log:q} -- \"$SCRIPTS/inference.py\""
        " --settings {params.settings:q} --questions {input.questions:q} --model {params.model:q}"
        " {params.found:q} --shard {wildcards.shard} --store \"$STORE\" --out {params.out:q} --log {log:q}"
