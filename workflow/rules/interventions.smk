# Other cuts than that of the exact question, one job per shard, which loads the model once more; only where
# 'controls: interventions' is configured.


INTERVENED = f"{RESULTS}/interventions/{SERIES}/{{shard}}"
SHARDS = range(SETTINGS.inference.shards)
# Of one series: the tables of all shards, and the activations.
INTERVENTIONS = (
    expand(f"{INTERVENED}/interventions.parquet", shard=SHARDS, allow_missing=True)
    if SETTINGS.controls and SETTINGS.controls.interventions
    else []
)
CUTS = expand(
    f"{INTERVENED}/{{name}}.{{site}}.{{position}}.safetensors",
    shard=SHARDS,
    name=RUN.intervention_files(),
    site=SETTINGS.controls.site if SETTINGS.controls else "",
    position=SETTINGS.controls.position if SETTINGS.controls else "",
    allow_missing=True,
)


if INTERVENTIONS:

    rule interventions:
        input:
            answers=expand(rules.inference.output.answers, shard=SHARDS, allow_missing=True),
            model=lambda wildcards: RUN.model_inputs(wildcards.model),
            scores=rules.probes.output.scores,
        output:
            table=f"{INTERVENED}/interventions.parquet",
            activations=expand(
                f"{INTERVENED}/{{name}}.{SETTINGS.controls.site}.{SETTINGS.controls.position}.safetensors",
                name=RUN.intervention_files(),
                allow_missing=True,
            ),
        log:
            f"{RESULTS}/logs/interventions/{SERIES}/{{shard}}.log",
        benchmark:
            f"{RESULTS}/benchmarks/interventions/{SERIES}/{{shard}}.tsv"
        params:
            settings=lambda wildcards: as_json(
                RUN.interventions_stage(wildcards.model, wildcards.dataset, wildcards.extractor)
            ),
            launch=lambda wildcards: RUN.launch_options(wildcards.model),
            model=lambda wildcards: RUN.model_directory(wildcards.model),
            out=lambda wildcards, output: Path(output.table).parent,
            contents=lambda wildcards: contents(RUN.model_inputs(wildcards.model)),
            code=code("interventions"),
        threads: lambda wildcards: RUN.models[wildcards.model].cores
        resources:
            **model_job(),
        conda:
            "../../envs/deltap.yaml"
        message:
            submitted(
                "Other cuts in {wildcards.model} on {wildcards.dataset} (shard {wildcards.shard})"
                " [{resources.gpu} GPUs]"
            )
        shell:
            "python \"$SCRIPTS/launch.py\" {params.launch} --log {log:q} -- \"$SCRIPTS/interventions.py\""
            " --settings {params.settings:q} --answers {input.answers:q} --scores {input.scores:q}"
            " --model {params.model:q} --shard {wildcards.shard} --store \"$STORE\" --out {params.out:q} --log {log:q}"
