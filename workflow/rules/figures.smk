# Figures, drawn from the summary alone.


FIGURES = {
    stem: entry
    for name, figure in RUN.figures.items()
    for stem, entry in figure_variants(
        name, figure, SETTINGS.inference.sites, SETTINGS.inference.positions, SETTINGS.groupings
    ).items()
}


rule figure:
    input:
        rules.summarise.output.parquet,
    output:
        expand(f"{RESULTS}/figures/{{{{figure}}}}.{{format}}", format=SETTINGS.formats),
    log:
        f"{RESULTS}/logs/figures/{{figure}}.log",
    params:
        settings=lambda wildcards: as_json(FIGURES[wildcards.figure]),
        code=code("plot_delta_p"),
    wildcard_constraints:
        figure="|".join(FIGURES),
    resources:
        mem_mb=2000,
        runtime=10,
    localrule: True
    conda:
        "../../envs/deltap.yaml"
    message:
        "Drawing {wildcards.figure}"
    shell:
        "python {SCRIPTS}/plot_delta_p.py --table {input:q} --settings {params.settings:q} --out {output:q} --log {log:q}"


rule figures:
    input:
        expand(rules.figure.output, figure=FIGURES),
