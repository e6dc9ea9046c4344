# What several stages' rules share.


def code(script):
    """Return the digest of a script's code and of the modules it uses; a change of it reruns the script's rule."""
    return code_digest(SCRIPTS / f"{script}.py")


def as_json(settings):
    """Return a stage's settings as the JSON text that its script takes."""
    return settings.model_dump_json()


def growing(amount):
    """Return a resource of which a retry gets more: ``amount``, or what it is for a job's wildcards, per attempt."""
    return lambda wildcards, attempt: attempt * (amount(wildcards) if callable(amount) else amount)


def placed(key, entry=lambda wildcards: RUN.models[wildcards.model]):
    """Return where a model's jobs go: what its entry says, else the profile's or the command line's default."""
    default = (workflow.resource_settings.default_resources or {}).get(f"slurm_{key}")
    return lambda wildcards: getattr(entry(wildcards), key, None) or (default and default.raw)


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
