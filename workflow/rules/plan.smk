# What the run costs, before it starts: 'snakemake plan'. It has no files of its own, so that it is made whenever it is
# asked for.


rule plan:
    log:
        f"{RESULTS}/logs/plan.log",
    params:
        settings=lambda wildcards: as_json(RUN.plan_stage()),
        out=f"{RESULTS}/plan.md",
    localrule: True
    conda:
        "../../envs/deltap.yaml"
    message:
        "Planning"
    shell:
        "python \"$SCRIPTS/plan.py\" --settings {params.settings:q} --out {params.out:q} --log {log:q}"
