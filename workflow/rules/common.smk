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
