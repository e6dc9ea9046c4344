"""An OpenAI-compatible server on this machine, whose replies a function makes."""

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class Requests(list[dict[str, Any]]):
    """The bodies of the requests that came, with ``url`` to send more to."""

    url: str


@contextmanager
def serve(reply: Callable[[str], str], key: str | None = None, busy: int = 0) -> Iterator[Requests]:
    """Serve chat completions: ``reply`` of the user's message; ``busy``: so many requests are first put off."""
    requests = Requests()
    lock = threading.Lock()
    left = [busy]

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            with lock:
                put_off = left[0] > 0
                left[0] -= put_off
            if self.path != "/v1/chat/completions":
                self._send(404, {"error": {"message": f"no {self.path} here"}})
            elif key and self.headers["Authorization"] != f"Bearer {key}":
                self._send(401, {"error": {"message": "wrong key"}})
            elif put_off:
                self._send(429, {"error": {"message": "busy"}}, {"Retry-After": "0"})
            else:
                requests.append(body)
                message = {"role": "assistant", "content": reply(body["messages"][-1]["content"])}
                choice = {"index": 0, "finish_reason": "stop", "message": message}
                self._send(
                    200,
                    {"id": "1", "object": "chat.completion", "created": 0, "model": body["model"], "choices": [choice]},
                )

        def _send(self, status: int, body: dict[str, Any], headers: dict[str, str] | None = None) -> None:
            content = json.dumps(body).encode()
            self.send_response(status)
            for name, value in {"Content-Type": "application/json", "Content-Length": str(len(content))}.items():
                self.send_header(name, value)
            for name, value in (headers or {}).items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, format: str, *arguments: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    requests.url = f"http://127.0.0.1:{server.server_port}/v1"
    try:
        yield requests
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
