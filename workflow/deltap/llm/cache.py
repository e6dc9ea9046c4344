"""Replies that were paid for once: by text, task and model."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from deltap.files import digest, write_json
from deltap.llm.ask import Progress, Replier, Task

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
        """Return the reply to each text; only those that are not kept yet are asked for, each text once."""
        paths = [self._path(task, text) for text in texts]
        found = {path: reply for path in dict.fromkeys(paths) if (reply := _read(path)) is not None}
        missing = {path: text for path, text in zip(paths, texts, strict=True) if path not in found}
        progress(sum(path in found for path in paths))
        waiting = list(missing.items())
        for start in range(0, len(waiting), _PORTION):
            portion = waiting[start : start + _PORTION]
            replies = self._replier.replies(task, [text for _, text in portion], progress)
            for (path, text), reply in zip(portion, replies, strict=True):
                kept = {"model": self.identity(), "text": task.message(text), "reply": reply}
                write_json(path, {**kept, "digest": digest(kept)})
                found[path] = reply
        return [found[path] for path in paths]

    def _path(self, task: Task, text: str) -> Path:
        name = digest([self.identity(), task.instruction, task.examples, text])
        return self._root / name[:2] / f"{name}.json"


def _read(path: Path) -> str | None:
    """Return a kept reply; None where there is none, or none that can be trusted (it is asked for again)."""
    try:
        kept = json.loads(path.read_text(encoding="utf-8"))
        written = kept.pop("digest", None)
        whole = kept.keys() == {"model", "text", "reply"} and written in (None, digest(kept))
        return str(kept["reply"]) if whole else None
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None
