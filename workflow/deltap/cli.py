"""What every script shares: arguments, log, progress and errors."""

import argparse
import datetime
import faulthandler
import io
import json
import logging
import os
import socket
import sys
import traceback
from collections import Counter
from collections.abc import Callable, Collection, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError
from tqdm import tqdm

from deltap import ranks, slurm
from deltap.errors import DeltapError
from deltap.files import unwritable, write_json
from deltap.settings import mistakes
from deltap.yaml_file import read_yaml

logger = logging.getLogger("deltap")
Settings = TypeVar("Settings", bound=BaseModel)
Item = TypeVar("Item")

# Facts about where a job ran; they go to the side file and never into a result.
_ENVIRONMENT = (
    "SLURM_JOB_ID",
    "SLURM_JOB_NODELIST",
    "SLURM_NTASKS",  # how many copies of the command there are, and which this is
    "SLURM_PROCID",
    "CUDA_VISIBLE_DEVICES",
    "SLURM_NNODES",
    "WORLD_SIZE",
    "LOCAL_WORLD_SIZE",
)


def parser(description: str | None) -> argparse.ArgumentParser:
    """Return an argument parser with the options that every script has (``--log``)."""
    result = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    result.add_argument("--log", type=Path, help="write the log here too, and facts about the job beside it (.json)")
    return result


def settings(kind: type[Settings], text: str) -> Settings:
    """Return the settings given as JSON text, or as the path of a JSON or YAML file.

    Raises DeltapError with one line per wrong key.
    """
    try:
        value = json.loads(text) if text.lstrip().startswith("{") else read_yaml(Path(text))
        return kind.model_validate(value)
    except ValidationError as error:
        raise DeltapError("\n".join(mistakes(error, kind))) from None
    except ValueError as error:
        raise DeltapError(f"--settings: {error}") from None


def add_options(arguments: argparse._ArgumentGroup, kind: type[BaseModel], without: Collection[str] = ()) -> None:
    """Add an option for each field of a settings class; ``null`` stands for None.

    `settings_with` puts what was given over settings.
    """
    for name, field in kind.model_fields.items():
        if name in without:
            continue
        options: dict[str, Any] = {"help": (field.description or name).replace("%", "%%").replace("``", "'")}
        if field.annotation is bool:
            options["action"] = argparse.BooleanOptionalAction
        elif "tuple" in str(field.annotation):
            options["nargs"] = "+"
        arguments.add_argument(f"--{name.replace('_', '-')}", default=argparse.SUPPRESS, **options)


def settings_with(options: argparse.Namespace, kind: type[Settings], text: str = "{}") -> Settings:
    """Return the settings of ``text`` (see `settings`) with the command line's options in their place.

    Raises DeltapError with one line per wrong value.
    """
    base = settings(kind, text).model_dump(exclude_unset=True)
    given = {name: _value(getattr(options, name)) for name in kind.model_fields if hasattr(options, name)}
    try:
        return kind.model_validate({**base, **given})
    except ValidationError as error:
        raise DeltapError("\n".join(f"--{line}" for line in mistakes(error, kind))) from None


def _value(given: Any) -> Any:
    """Return an option's value; ``null``, alone or in a list of one, is None."""
    return None if given in ("null", ["null"]) else given


def progress(items: Iterable[Item], description: str, total: int | None = None, unit: str = "it") -> "tqdm[Item]":
    """Return ``items`` with a progress bar on standard error; off the terminal it prints a line every 10 seconds."""
    if sys.stderr.isatty():
        return tqdm(items, desc=description, total=total, unit=unit, dynamic_ncols=True)
    return tqdm(items, desc=description, total=total, unit=unit, mininterval=10, ncols=100, file=_Lines())


class _Lines(io.TextIOBase):
    """Standard error, on which a progress bar that is drawn again begins a new line."""

    def write(self, text: str) -> int:
        line = text.strip("\r\n")
        return sys.stderr.write(line + "\n") if line else 0

    def flush(self) -> None:
        sys.stderr.flush()


def counts(names: Iterable[str]) -> str:
    """Return how often each name occurs, such as ``": empty_answer 3, truncated_answer 1"``, or "" for none."""
    found = Counter(names).most_common()
    return ": " + ", ".join(f"{name} {number}" for name, number in found) if found else ""


def run(main: Callable[[argparse.Namespace], None], arguments: argparse.ArgumentParser) -> None:
    """Parse the command line, call ``main`` with it, and exit with its status.

    A `DeltapError` is printed as one message and exits with 1; anything else leaves its traceback in the log too. Of
    several ranks only the first one logs, and the launcher tells why one failed. A second copy of a job leaves
    everything to the first, its log included.
    """
    options = arguments.parse_args()
    if slurm.is_second_copy():
        print(f"task {os.environ['SLURM_PROCID']} of this Slurm step is a second copy of the job; it stops here")
        sys.exit(0)
    ranks.end_with_launcher()
    log = options.log if ranks.here().first else None
    try:
        _start_log(log, logging.INFO if ranks.here().first else logging.ERROR)
    except OSError as error:
        sys.exit(f"error: {log}: cannot be written: {unwritable(error) or error}")
    started = datetime.datetime.now(datetime.UTC)
    status = 1
    try:
        main(options)
        ranks.end()
        status = 0
    except ranks.Followed:
        status = 0
    except DeltapError as error:
        _failed(str(error))
    except KeyboardInterrupt:
        logger.error("interrupted")
        status = 130
    except Exception as error:
        here = ranks.here()
        which = "" if here.first else f" on rank {here.rank} of {here.number}"
        text = traceback.format_exc().rstrip()
        reason = unwritable(error) or "this is a bug of deltap, or a broken installation"
        _failed(f"unexpected error{which}; {reason}:\n{text}")
    finally:
        if log:
            with suppress(DeltapError):  # what a job could not write besides is not worth another error
                write_json(log.with_suffix(".json"), _job(started, status))
    sys.exit(status)


def _failed(message: str) -> None:
    if ranks.report(message):
        os._exit(1)  # at once: leaving the others in order would wait for them
    logger.error("error: %s", message)


def ranks_failed(message: str, log: Path | None, started: datetime.datetime) -> None:
    """Say why a job of several ranks failed, in their stead: on standard error, in the log and in its side file."""
    print(f"error: {message}", file=sys.stderr)
    if log:
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("a", encoding="utf-8") as stream:
            stream.write(f"error: {message}\n")
        write_json(log.with_suffix(".json"), _job(started, 1))


def _start_log(path: Path | None, level: int) -> None:
    logger.setLevel(level)
    logging.raiseExceptions = False  # a log that cannot be written is no reason to fail
    handlers: list[logging.Handler] = [logging.StreamHandler()]
    if path:
        path.parent.mkdir(parents=True, exist_ok=True)
        handlers.append(logging.FileHandler(path, mode="w", encoding="utf-8"))
        faulthandler.enable(open(path, "a"))  # noqa: SIM115, PTH123 - stays open for a crash
    for handler in handlers:
        handler.setFormatter(logging.Formatter("%(message)s"))
        logger.addHandler(handler)


def _job(started: datetime.datetime, status: int) -> dict[str, Any]:
    ended = datetime.datetime.now(datetime.UTC)
    return {
        "command": sys.argv,
        "host": socket.gethostname(),
        "pid": os.getpid(),
        "started": started.isoformat(timespec="seconds"),
        "ended": ended.isoformat(timespec="seconds"),
        "seconds": round((ended - started).total_seconds(), 3),
        "status": status,
        **{name: os.environ[name] for name in _ENVIRONMENT if name in os.environ},
    }
