# A run for others: Snakemake's report, which is one HTML file, and an archive that figures can be drawn from.


# Reports in Markdown that stand in the HTML report as pages.
PAGES = {**({"controls": "Controls"} if SETTINGS.controls else {}), "verdict": "Verdict", "samples": "Samples", "extraction": "Exact tokens", "provenance": "Provenance"}
TABLES = [f"{RESULTS}/{table}.parquet" for table in (*PARTS, "delta_p_summary", "samples", "extraction", "extraction_fields")]


rule provenance:
    input:
        tables=TABLES,
        manifests=[*rules.download.input],
    output:
        json=f"{RESULTS}/provenance.json",
        markdown=f"{RESULTS}/provenance.md",
        config=f"{RESULTS}/config.yaml",
    log:
        f"{RESULTS}/logs/provenance.log",
    benchmark:
        f"{RESULTS}/benchmarks/provenance.tsv"
    params:
        # By functions, because braces in a prompt are no wildcards.
        given=lambda wildcards: json.dumps(config, ensure_ascii=False),
        configuration=lambda wildcards: json.dumps(RUN.configuration(), ensure_ascii=False),
        manifests=lambda wildcards, input: option("--manifests", input.manifests),
        code=code("provenance"),
    resources:
        mem_mb=2000,
        runtime=10,
    localrule: True
    conda:
        "../../envs/deltap.yaml"
    message:
        "What made this run"
    shell:
        "python \"$SCRIPTS/provenance.py\" --tables {input.tables:q} {params.manifests:q} --given {params.given:q}"
        " --configuration {params.configuration:q} --out {output.json:q} --report {output.markdown:q}"
        " --config {output.config:q} --log {log:q}"


for NAME, TITLE in PAGES.items():

    rule:
        name:
            f"page_{NAME}"
        input:
            f"{RESULTS}/{NAME}.md",
        output:
            report(
                f"{RESULTS}/pages/{NAME}.html",
                caption=f"../report/{NAME}.rst",
                category=TITLE if NAME in ("controls", "verdict", "provenance") else "Tables",
                labels={"table": TITLE},
            ),
        log:
            f"{RESULTS}/logs/pages/{NAME}.log",
        benchmark:
            f"{RESULTS}/benchmarks/pages/{NAME}.tsv"
        params:
            code=code("page"),
        resources:
            mem_mb=1000,
            runtime=10,
        localrule: True
        conda:
            "../../envs/deltap.yaml"
        message:
            f"{TITLE}, as a page"
        shell:
            "python \"$SCRIPTS/page.py\" --markdown {input:q} --out {output:q} --log {log:q}"


# A Snakemake inside of Snakemake: it does not inherit the configuration, so it gets it as one file. It asks for nothing
# but what is finished, and so it needs no lock.
rule report:
    input:
        rules.tables.input,
        rules.figures.input,
        expand(f"{RESULTS}/pages/{{name}}.html", name=PAGES),
        config=rules.provenance.output.config,
    output:
        f"{RESULTS}/report.html",
    log:
        f"{RESULTS}/logs/report.log",
    benchmark:
        f"{RESULTS}/benchmarks/report.tsv"
    params:
        captions=digest({path.name: path.read_text("utf-8") for path in sorted(BASE.glob("workflow/report/*"))}),
    resources:
        mem_mb=2000,
        runtime=30,
    localrule: True
    conda:
        "../../envs/deltap.yaml"
    message:
        "Writing {output}"
    shell:
        "\"$PYTHON\" -m snakemake {input:q} --snakefile \"$BASE/Snakefile\" --configfile {input.config:q} --nolock"
        " --report {output:q} --report-stylesheet \"$BASE/workflow/report/style.css\" > {log:q} 2>&1"


rule export:
    input:
        rules.tables.input,
        rules.verdict.output,
        rules.controls_report.output if SETTINGS.controls else [],
        rules.figures.input,
        rules.provenance.output,
    output:
        f"{RESULTS}/{SETTINGS.run}.zip",
    log:
        f"{RESULTS}/logs/export.log",
    benchmark:
        f"{RESULTS}/benchmarks/export.tsv"
    params:
        run=SETTINGS.run,
        results=RESULTS,
        code=code("export"),
    resources:
        mem_mb=2000,
        runtime=30,
    localrule: True
    conda:
        "../../envs/deltap.yaml"
    message:
        "Writing {output}"
    shell:
        "python \"$SCRIPTS/export.py\" --run {params.run:q} --results {params.results:q} --files {input:q}"
        " --about \"$BASE/CITATION.cff\" \"$BASE/LICENSE\" --out {output:q} --log {log:q}"
