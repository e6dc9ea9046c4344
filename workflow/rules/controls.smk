# What selection, chance and other cuts give instead of the effect, one job per series; only where 'controls' is configured.


if SETTINGS.controls:

    rule controls:
        input:
            labels=rules.labels.output,
            probes=rules.probes.output.probes,
            scores=rules.probes.output.scores,
            anchors=rules.anchors.output,
            clean=activations("clean"),
            knockout=activations("knockout"),
            interventions=INTERVENTIONS,
            cuts=CUTS,
        output:
            rows=f"{RESULTS}/controls/{SERIES}/delta_p.parquet",
            statistics=f"{RESULTS}/controls/{SERIES}/controls.parquet",
        log:
            f"{RESULTS}/logs/controls/{SERIES}.log",
        benchmark:
            f"{RESULTS}/benchmarks/controls/{SERIES}.tsv"
        params:
            settings=as_json(RUN.controls_stage()),
            interventions=lambda wildcards, input: option("--interventions", input.interventions),
            cuts=lambda wildcards, input: option("--cuts", input.cuts),
            code=code("controls"),
        threads: 2
        resources:
            mem_mb=growing(4000),
            runtime=growing(240),
        conda:
            "../../envs/deltap.yaml"
        message:
            submitted("The controls of {wildcards.model} on {wildcards.dataset}")
        shell:
            "python \"$SCRIPTS/controls.py\" --settings {params.settings:q} --labels {input.labels:q}"
            " --probes {input.probes:q} --scores {input.scores:q} --anchors {input.anchors:q} --clean {input.clean:q}"
            " --knockout {input.knockout:q} {params.interventions:q} {params.cuts:q} --jobs {threads}"
            " --rows {output.rows:q} --out {output.statistics:q} --log {log:q}"


    rule controls_report:
        input:
            rows=f"{RESULTS}/delta_p.parquet",
            statistics=f"{RESULTS}/controls.parquet",
        output:
            report=f"{RESULTS}/controls.md",
            differences=f"{RESULTS}/controls_differences.parquet",
        log:
            f"{RESULTS}/logs/controls_report.log",
        benchmark:
            f"{RESULTS}/benchmarks/controls_report.tsv"
        params:
            settings=as_json(RUN.controls_stage()),
            code=code("controls_report"),
        resources:
            mem_mb=growing(4000),
            runtime=growing(30),
        localrule: True
        conda:
            "../../envs/deltap.yaml"
        message:
            "Is the effect real?"
        shell:
            "python \"$SCRIPTS/controls_report.py\" --settings {params.settings:q} --table {input.rows:q}"
            " --statistics {input.statistics:q} --differences {output.differences:q} --out {output.report:q} --log {log:q}"
