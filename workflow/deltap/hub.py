"""The Hugging Face Hub: whether a repository may be had, at which commit it is and what it holds.

The commands of downloads are the only ones that use this; `api` is where they get the hub's interface from.
"""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from fnmatch import fnmatch
from typing import Any, Literal, NamedTuple

from deltap.errors import DeltapError
from deltap.manifest import FETCH

WEIGHTS = "model*.safetensors"
"""The weights that transformers loads. Nothing pickled is fetched, nor a second copy in another library's layout."""


class Unreachable(DeltapError):
    """The hub does not answer, or something lies between."""


class Repository(NamedTuple):
    """A repository of the hub, and which of its revisions."""

    kind: Literal["model", "dataset"]
    name: str
    """Such as ``Qwen/Qwen3-8B``."""
    revision: str | None = None
    """A commit, tag or branch; None for the branch that the hub shows."""

    def __str__(self) -> str:
        """Return ``model:owner/name@revision``."""
        return f"{self.kind}:{self.name}{f'@{self.revision}' if self.revision else ''}"

    @classmethod
    def parse(cls, text: str) -> "Repository":
        """Return the repository that `__str__` wrote. Raises ValueError for any other text."""
        kind, _, rest = text.partition(":")
        name, _, revision = rest.partition("@")
        if kind not in ("model", "dataset") or not name:
            raise ValueError(f"expected model:OWNER/NAME or dataset:OWNER/NAME, found {text!r}")
        return cls(kind, name, revision or None)  # type: ignore[arg-type]


class Contents(NamedTuple):
    """A repository at one commit."""

    commit: str
    files: dict[str, Any]
    """By path: the hub's description of a file, with ``size`` and, for large ones, ``lfs.sha256``."""


def api() -> Any:
    """Return the interface to the hub (`huggingface_hub.HfApi`)."""
    from huggingface_hub import HfApi

    return HfApi()


def resolve(repository: Repository) -> Contents:
    """Return the commit that a repository's revision is now, and its files.

    Raises DeltapError where it cannot be had, or is a model without safetensors weights.
    """
    hub = api()
    ask = hub.model_info if repository.kind == "model" else hub.dataset_info
    with explained(repository):
        found = ask(repository.name, revision=repository.revision, files_metadata=True)
    files = {file.rfilename: file for file in found.siblings or ()}
    if repository.kind == "model" and not any(is_weights(name) for name in files):
        others = sorted(name for name in files if name.endswith((".safetensors", ".bin", ".pt", ".pth", ".gguf")))
        raise DeltapError(
            f"{repository.name}: the repository has no weights {WEIGHTS} (it has: {', '.join(others) or 'none'}); "
            "pickled ones are never loaded: take another repository of the model, or convert it to safetensors and "
            "give 'source: {path: DIRECTORY}'"
        )
    return Contents(str(found.sha), files)


def is_weights(name: str) -> bool:
    """Tell whether a repository's file holds weights that are fetched: `WEIGHTS`, and in no folder."""
    return "/" not in name and fnmatch(name, WEIGHTS)


def accessible(repositories: Iterable[Repository]) -> dict[Repository, Contents]:
    """Ask for every repository whether it may be had, before anything large is downloaded, and return what they hold.

    Raises DeltapError with one line for each that may not: gated, unknown, or without safetensors weights.
    """
    hub, contents, mistakes = api(), {}, []
    for repository in dict.fromkeys(repositories):
        try:
            with explained(repository):
                hub.auth_check(repository.name, repo_type=repository.kind)
            contents[repository] = resolve(repository)
        except Unreachable:
            raise  # the next one would only take as long
        except DeltapError as error:
            mistakes.append(str(error))
    if mistakes:
        raise DeltapError("\n".join(mistakes))
    return contents


@contextmanager
def explained(repository: Repository) -> Iterator[None]:
    """Turn what the hub's interface raises into a DeltapError with the remedy."""
    from huggingface_hub import constants, errors

    name, revision = repository.name, repository.revision
    page = f"{constants.ENDPOINT}/{'datasets/' if repository.kind == 'dataset' else ''}{name}"
    what, path = ("model", "'source: {path: DIRECTORY}'") if repository.kind == "model" else ("data set", "'path:'")
    try:
        yield
    except errors.GatedRepoError:
        raise DeltapError(
            f"{name}: this {what} is gated; accept its licence at {page}, then log in with 'hf auth login' or set "
            "HF_TOKEN, and run 'snakemake download' again"
        ) from None
    except errors.RevisionNotFoundError:
        raise DeltapError(
            f"{name}: the hub has no revision '{revision}' of this {what}; correct 'revision', or, where an older "
            f"manifest pins it, delete that manifest ({page}/commits/main lists what there is)"
        ) from None
    except (errors.RepositoryNotFoundError, errors.HFValidationError):
        raise DeltapError(
            f"{name}: the hub has no such {what}, or it is private; correct 'hub' (OWNER/NAME), or log in with "
            "'hf auth login' or set HF_TOKEN"
        ) from None
    except errors.OfflineModeIsEnabled:
        raise Unreachable(
            f"{name}: not downloaded yet, and HF_HUB_OFFLINE is set; {FETCH}, or give a local copy as {path}"
        ) from None
    except errors.HfHubHTTPError as error:
        raise DeltapError(
            f"{name}: the hub refuses this {what} ({error}); try again later, or give a local copy as {path}"
        ) from None
    except (OSError, errors.HTTPError) as error:
        raise Unreachable(
            f"{name}: cannot be fetched from the hub ({type(error).__name__}: {error}); {FETCH}, or give a local copy "
            f"as {path}"
        ) from None
