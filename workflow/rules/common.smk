# What several stages' rules share.


def code(script):
    """Return the digest of a script's code and of the modules it uses; a change of it reruns the script's rule."""
    return code_digest(SCRIPTS / f"{script}.py")


def as_json(settings):
    """Return a stage's settings as the JSON text that its script takes."""
    return settings.model_dump_json()


def option(flag, paths):
    """Return a command-line option with the files it takes, or nothing where there are none."""
    return [flag, *paths] if paths else []


def every_series(pattern, **more):
    """Return ``pattern`` for every model, data set and extractor, in the configured order."""
    return expand(
        pattern, model=list(RUN.models), dataset=list(RUN.datasets), extractor=SETTINGS.extractors, **more
    )


def activations(name):
    """Return the activation files of a pass for each shard, site and position of one series."""
    return expand(
        f"{RESULTS}/inference/{SERIES}/{{shard}}/{name}.{{site}}.{{position}}.safetensors",
        shard=range(SETTINGS.inference.shards),
        site=SETTINGS.inference.sites,
        position=SETTINGS.inference.positions,
        allow_missing=True,
    )


# Of the formats of a figure, the report shows the interactive one and the first of the others in this order.
SHOWN = ("png", "svg", "pdf")
TITLES = {
    "delta_p": "ΔP against layer",
    "auroc": "AUROC of the probes",
    "flip_rate": "Flip rate",
    "delta_p_distribution": "Distribution of ΔP",
    "groups": "Groups",
    "exclusions": "Exclusions",
}


def figure_files(name, job):
    """Return the files of a figure, of which those that the report shows are marked."""
    return [
        in_report(name, entry, path) if kind in ("html", shown) else path
        for stem, entry in job.stage.figures.items()
        for formats in [entry.formats or job.stage.formats]
        for shown in [next((kind for kind in SHOWN if kind in formats), None)]
        for kind in formats
        for path in [f"{RESULTS}/figures/{stem}.{kind}"]
    ]


def in_report(name, entry, path):
    """Return a figure's file with its place in the report."""
    told_apart_by = ("site", "position", "grouping", *(("extractor",) if len(SETTINGS.extractors) > 1 else ()))
    chosen = {key: getattr(entry, key, None) for key in told_apart_by}
    return report(
        path,
        caption=f"../report/{'delta_p_interactive' if path.endswith('.html') else entry.kind}.rst",
        category="Figures",
        subcategory=TITLES[entry.kind],
        labels={"figure": name, **{key: value for key, value in chosen.items() if value}},
    )
