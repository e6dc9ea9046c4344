# Models that are fetched: needs a network, so it runs where snakemake itself runs, and everything after it offline.


SOURCES = {RUN.source_slug(name): entry.source for name, entry in RUN.models.items() if not entry.source.path}


rule fetch_model:
    output:
        f"{SETTINGS.paths.models}/{{source}}/manifest.json",
    log:
        f"{RESULTS}/logs/fetch_model/{{source}}.log",
    benchmark:
        f"{RESULTS}/benchmarks/fetch_model/{{source}}.tsv"
    # No digest of code: weights are not fetched again because a line of the script changed.
    params:
        settings=lambda wildcards: SOURCES[wildcards.source].model_dump_json(),
        directory=lambda wildcards, output: Path(output[0]).parent,
    wildcard_constraints:
        source="|".join(map(re.escape, SOURCES)) or "none",
    localrule: True
    conda:
        "../../envs/deltap.yaml"
    message:
        "Fetching the model {wildcards.source}"
    shell:
        "python \"$SCRIPTS/fetch_model.py\" --settings {params.settings:q} --out {params.directory:q} --log {log:q}"


rule download:
    input:
        expand(rules.fetch_model.output, source=SOURCES),
