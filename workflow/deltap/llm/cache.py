"""Replies that were paid for once: by text, task and model."""

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from deltap.errors import DeltapError
from deltap.files import digest, write_json
from deltap.llm.ask import Progress, Replier, Task
from deltap.lock import claimed, locked

_PORTION = 256  # replies that a killed job may lose


class Cached:
    """A replier whose replies are kept under a directory, one small file each."""

    def __init__(self, replier: Replier, root: Path) -> None:
        self._replier = replier
        self._root = root

    def identity(self) -> dict[str, Any]:
        """Return the identity of the one who replies."""
        return self._replier.identity()

    def replies(self, task: Task, texts: Sequence[str], progress: Progress) -> list[str]:
        """Return the reply to each text; only those that are not kept yet are asked for, each text once.

        Processes that want the same replies at the same time share the asking. Only where another one is on a machine
        that cannot be seen from here, and takes more than a minute, are its texts asked for here as well.
        """
        paths = [self._path(task, text) for text in texts]
        wanted = dict(zip(paths, texts, strict=True))
        found = {path: reply for path in wanted if not _lock(path).exists() and (reply := _read(path)) is not None}
        progress(sum(path in found for path in paths))
        missing = [path for path in wanted if path not in found]
        for start in range(0, len(missing), _PORTION):
            with claimed(map(_lock, missing[start : start + _PORTION])) as locks:
                mine = {path: wanted[path] for path in missing[start : start + _PORTION] if _lock(path) in locks}
                found |= self._ask(task, mine, progress)
        theirs = {path: text for path, text in wanted.items() if path not in found}
        _wait_for(theirs)
        found |= self._ask(task, theirs, progress)
        return [found[path] for path in paths]

    def _ask(self, task: Task, wanted: Mapping[Path, str], progress: Progress) -> dict[Path, str]:
        """Return the replies to ``wanted``: what is kept by now, and what is asked for and kept."""
        found = {path: reply for path in wanted if (reply := _read(path)) is not None}
        progress(len(found))
        missing = [path for path in wanted if path not in found]
        for start in range(0, len(missing), _PORTION):
            portion = missing[start : start + _PORTION]
            replies = self._replier.replies(task, [wanted[path] for path in portion], progress)
            for path, reply in zip(portion, replies, strict=True):
                kept = {"model": self.identity(), "text": task.message(wanted[path]), "reply": reply}
                write_json(path, {**kept, "digest": digest(kept)})
                found[path] = reply
        return found

    def _path(self, task: Task, text: str) -> Path:
        name = digest([self.identity(), task.instruction, task.examples, text])
        return self._root / name[:2] / f"{name}.json"


def _lock(path: Path) -> Path:
    return path.with_suffix(".lock")


def _wait_for(paths: Iterable[Path]) -> None:
    """Wait until nobody asks for the replies any more, or until nobody can tell whether somebody still does."""
    with suppress(DeltapError):
        for path in paths:
            with locked(_lock(path), "a reply of the language model", patience=math.inf):
                pass  # which also removes what a killed process left


def _read(path: Path) -> str | None:
    """Return a kept reply; None where there is none, or none that can be trusted (it is asked for again)."""
    try:
        kept = json.loads(path.read_text(encoding="utf-8"))
        written = kept.pop("digest", None)
        whole = kept.keys() == {"model", "text", "reply"} and written in (None, digest(kept))
        return str(kept["reply"]) if whole else None
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None
