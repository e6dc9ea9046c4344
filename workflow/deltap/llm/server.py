"""A language model behind an OpenAI-compatible server."""

import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import openai

from deltap.errors import DeltapError
from deltap.llm.ask import Progress, Task
from deltap.settings import REPLY_TOKENS, LlmSettings, Server

_RETRIES = 5  # with growing pauses, for a server that is busy or starts


class ServerModel:
    """Asks a server, several texts at a time, without sampling."""

    def __init__(self, settings: LlmSettings) -> None:
        """Prepare requests. Raises DeltapError if the key's environment variable is not set."""
        assert settings.server is not None
        self._server: Server = settings.server
        self._max_new_tokens = settings.max_new_tokens or REPLY_TOKENS
        variable = self._server.key_variable
        if variable and not os.environ.get(variable):
            raise DeltapError(
                f"llm.server.key_variable: the environment variable {variable} is not set; export the key"
            )
        self._client = openai.OpenAI(
            base_url=self._server.url,
            api_key=os.environ[variable] if variable else "none",
            timeout=self._server.timeout,
            max_retries=_RETRIES,
        )

    def identity(self) -> dict[str, Any]:
        """Return the server, its model and what is asked of it."""
        fields = self._server.model_dump(mode="json", include={"url", "model", "options"})
        return {**fields, "max_new_tokens": self._max_new_tokens}

    def replies(self, task: Task, texts: Sequence[str], progress: Progress) -> list[str]:
        """Return the reply to each text. Raises DeltapError with the remedy where the server refuses."""
        replies = []
        with ThreadPoolExecutor(self._server.parallel) as pool:
            for reply in pool.map(lambda text: self._reply(task.message(text)), texts):
                replies.append(reply)
                progress(1)
        return replies

    def _reply(self, message: str) -> str:
        options = {"temperature": 0, **self._server.options}
        if "max_completion_tokens" not in options:
            options.setdefault("max_tokens", self._max_new_tokens)
        try:
            completion = self._client.chat.completions.create(
                model=self._server.model, messages=[{"role": "user", "content": message}], **options
            )
        except openai.AuthenticationError as error:
            raise DeltapError(
                f"{self._server.url}: the server refuses the key ({error.message}); name the environment variable that "
                "holds it as llm.server.key_variable"
            ) from None
        except openai.APITimeoutError:
            raise DeltapError(
                f"{self._server.url}: no reply within {self._server.timeout:g} seconds; raise llm.server.timeout, or "
                "lower llm.server.parallel"
            ) from None
        except openai.APIConnectionError as error:
            raise DeltapError(f"{self._server.url}: no server answers ({error.__cause__ or error}); start it") from None
        except openai.NotFoundError as error:
            raise DeltapError(f"{self._server.url}: {error.message}; does llm.server.model exist there?") from None
        except openai.APIError as error:
            raise DeltapError(f"{self._server.url}: {error.message}") from None
        return (completion.choices[0].message.content if completion.choices else None) or ""
