# What several stages' rules share.


def code(script):
    """Return the digest of a script's code and of the modules it uses; a change of it reruns the script's rule."""
    return code_digest(SCRIPTS / f"{script}.py")


def as_json(settings):
    """Return a stage's settings as the JSON text that its script takes."""
    return settings.model_dump_json()


def literal(text):
    """Return a parameter that is ``text`` as it stands: what stands in braces in a label or a path is no wildcard."""
    return lambda wildcards: text


def contents(*inputs):
    """Return a digest of files that come from outside, so that one that an older one replaces reruns the rule, too.

    Manifests and what rules make have theirs inside. (As a function of a rule's ``input`` it would not count as changed.)
    """
    return file_contents(
        Path(path) for paths in inputs for path in ([paths] if isinstance(paths, (str, Path)) else paths)
        if Path(path).name != MANIFEST
    )


def growing(amount):
    """Return a resource of which a retry gets more: ``amount``, or what it is for a job's wildcards, per attempt."""
    return lambda wildcards, attempt: attempt * (amount(wildcards) if callable(amount) else amount)


def model_job(entry=lambda wildcards: RUN.models[wildcards.model]):
    """Return the resources of a job that loads the model of ``entry`` (by the job's wildcards).

    Where Slurm puts it: what the entry says, else the profile or the command line. On several nodes the launcher calls
    srun itself, once for each node, which the plugin knows as ``mpi``.
    """
    defaults = workflow.resource_settings.default_resources or {}

    def placed(key):
        default = defaults.get(f"slurm_{key}")
        return lambda wildcards: getattr(entry(wildcards), key) or (default and default.raw)

    def on_nodes(value):
        return lambda wildcards: value(entry(wildcards)) if entry(wildcards).nodes > 1 else None

    return {
        "mem_mb": growing(lambda wildcards: entry(wildcards).memory_mb),
        "runtime": growing(lambda wildcards: entry(wildcards).walltime_minutes),
        "gpu": lambda wildcards: entry(wildcards).gpus,
        "slurm_partition": placed("partition"),
        "slurm_account": placed("account"),
        "nodes": on_nodes(lambda model: model.nodes),
        "tasks": on_nodes(lambda model: model.nodes),
        "tasks_per_gpu": on_nodes(lambda model: 0),
        "gres": on_nodes(lambda model: f"gpu:{model.gpus // model.nodes}" if model.gpus else None),
        "mpi": on_nodes(lambda model: "srun"),
    }


def submitted(message):
    """Return the message of a job that is submitted, with what it asks for; a dry run shows it."""
    return f"{message} [{{threads}} CPUs, {{resources.mem_mb}} MB, {{resources.runtime}} minutes]"


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
    "controls": "Controls",
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
    # controls.rst is the caption of their page.
    caption = "delta_p_interactive" if path.endswith(".html") else {"controls": "controls_figures"}.get(entry.kind, entry.kind)
    return report(
        path,
        caption=f"../report/{caption}.rst",
        category="Figures",
        subcategory=TITLES[entry.kind],
        labels={"figure": name, **{key: value for key, value in chosen.items() if value}},
    )


# What the language model that finds exact tokens and judges is and needs; a server needs nothing of ours.
LLM = {
    "inputs": RUN.model_inputs(SETTINGS.llm.model) if RUN.llm else [],
    "directory": option("--model", [RUN.model_directory(SETTINGS.llm.model)]) if RUN.llm else [],
    "launch": RUN.launch_options(SETTINGS.llm.model) if RUN.llm else [],
    "threads": RUN.llm.cores if RUN.llm else 1,
    "resources": (
        model_job(lambda wildcards: RUN.llm)
        if RUN.llm
        else {"mem_mb": growing(4000), "runtime": growing(240), "gpu": 0}
    ),
}
