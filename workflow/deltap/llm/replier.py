"""The configured language model, ready to be asked."""

from pathlib import Path

from deltap.llm.ask import Replier
from deltap.llm.cache import Cached
from deltap.settings import LlmSettings, ModelSettings


def replier(settings: LlmSettings, entry: ModelSettings | None, directory: Path | None, cache: Path) -> Replier:
    """Return the language model of ``settings``, whose replies are kept under ``cache``.

    ``entry`` and ``directory`` tell how and from where a model is run; they are None for a server.
    """
    if settings.server is not None:
        from deltap.llm.server import ServerModel

        return Cached(ServerModel(settings), cache)
    assert entry is not None
    assert directory is not None
    from deltap.llm.local import LocalModel

    return Cached(LocalModel(directory, entry), cache)
