# What needs a network, and nothing else does: models and question sets of the hub. It runs where snakemake itself runs;
# 'snakemake download' runs it alone. The folders that are filled are no outputs, for a failed job would delete them.


# No digest of code: nothing is downloaded again because a line of the script changed. A manifest outlives its job
# (update), because it pins the commit.
rule fetch_model:
    input:
        lambda wildcards: RUN.model_downloads[wildcards.source].path or [],
    output:
        update(f"{SETTINGS.paths.models}/{{source}}/manifest.json"),
    log:
        f"{RESULTS}/logs/fetch_model/{{source}}.log",
    benchmark:
        f"{RESULTS}/benchmarks/fetch_model/{{source}}.tsv"
    params:
        settings=lambda wildcards: RUN.model_downloads[wildcards.source].model_dump_json(exclude_none=True),
        directory=lambda wildcards, output: Path(output[0]).parent,
        contents=lambda wildcards: contents(RUN.model_downloads[wildcards.source].path or []),
    wildcard_constraints:
        source="|".join(map(re.escape, RUN.model_downloads)) or "none",
    localrule: True
    conda:
        "../../envs/deltap.yaml"
    message:
        "Fetching the model {wildcards.source}"
    shell:
        "HF_HUB_OFFLINE=$OFFLINE python \"$SCRIPTS/fetch_model.py\" --settings {params.settings:q}"
        " --others $NOT_DOWNLOADED --out {params.directory:q} --log {log:q}"


rule fetch_dataset:
    output:
        update(f"{SETTINGS.paths.datasets}/{{source}}/manifest.json"),
    log:
        f"{RESULTS}/logs/fetch_dataset/{{source}}.log",
    benchmark:
        f"{RESULTS}/benchmarks/fetch_dataset/{{source}}.tsv"
    params:
        settings=lambda wildcards: RUN.dataset_downloads[wildcards.source].model_dump_json(exclude_none=True),
        directory=lambda wildcards, output: Path(output[0]).parent,
    wildcard_constraints:
        source="|".join(map(re.escape, RUN.dataset_downloads)) or "none",
    localrule: True
    conda:
        "../../envs/deltap.yaml"
    message:
        "Downloading the question set {wildcards.source}"
    shell:
        "HF_HUB_OFFLINE=$OFFLINE python \"$SCRIPTS/fetch_dataset.py\" --settings {params.settings:q}"
        " --others $NOT_DOWNLOADED --out {params.directory:q} --log {log:q}"


rule download:
    input:
        expand(rules.fetch_model.output, source=RUN.model_downloads),
        expand(rules.fetch_dataset.output, source=RUN.dataset_downloads),
