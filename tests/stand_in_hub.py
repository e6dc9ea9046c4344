"""A stand-in for the Hugging Face Hub: serves folders as repositories, over HTTP, to the real client libraries."""

import hashlib
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

LARGE = (".safetensors", ".bin", ".parquet")  # the hub keeps these in LFS, and tells their SHA-256


@dataclass
class Repository:
    """A repository: the folder of each commit; the last one is the branch main."""

    commits: dict[str, Path]
    gated: bool = False


@dataclass
class Hub:
    """Repositories by ``models/OWNER/NAME`` and ``datasets/OWNER/NAME``, and what was asked for."""

    repositories: dict[str, Repository] = field(default_factory=dict)
    requests: list[str] = field(default_factory=list)
    endpoint: str = ""

    def add(self, name: str, folder: Path, gated: bool = False) -> str:
        """Add a folder as the newest commit of a repository, and return the commit's hash."""
        content = "".join(f"{path.relative_to(folder)} {path.stat().st_mtime_ns}" for path in sorted(folder.rglob("*")))
        commit = hashlib.sha1(f"{name} {content}".encode()).hexdigest()
        repository = self.repositories.setdefault(name, Repository({}, gated))
        repository.commits[commit] = folder
        return commit

    def downloaded(self) -> list[str]:
        """Return the paths of the files that were asked for."""
        return [
            request.removeprefix("GET ") for request in self.requests if "GET" in request and "/resolve/" in request
        ]


@contextmanager
def serving() -> Iterator[Hub]:
    """Serve a hub while the block runs; its endpoint is for ``HF_ENDPOINT``."""
    hub = Hub()
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (_Handler,), {"hub": hub}))
    hub.endpoint = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield hub
    finally:
        server.shutdown()
        server.server_close()


class _Refused(Exception):
    pass


class _Handler(BaseHTTPRequestHandler):
    hub: Hub
    protocol_version = "HTTP/1.1"

    def log_message(self, *arguments: Any) -> None:
        pass

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_POST(self) -> None:
        self.body = self.rfile.read(int(self.headers["Content-Length"])).decode()
        self.do_GET()

    def do_GET(self) -> None:
        parts = [unquote(part) for part in urlsplit(self.path).path.strip("/").split("/")]
        self.hub.requests.append(f"{self.command} {unquote(urlsplit(self.path).path)}")
        try:
            if parts[0] == "api":
                kind, owner, name, *rest = parts[1:]
                self.answer(json.dumps(self.described(f"{kind}/{owner}/{name}", rest)).encode(), {})
            else:
                kind, rest = ("datasets", parts[1:]) if parts[0] == "datasets" else ("models", parts)
                owner, name, resolve, revision, *path = rest
                assert resolve == "resolve"
                repository, commit = self.found(f"{kind}/{owner}/{name}", revision)
                self.allowed(repository)
                file = repository.commits[commit] / "/".join(path)
                if not file.is_file():
                    raise _Refused(404, "EntryNotFound")
                tag = _sha256(file) if file.suffix in LARGE else _blob(file)
                self.answer(file.read_bytes(), {"ETag": f'"{tag}"', "X-Repo-Commit": commit})
        except _Refused as refused:
            status, code = refused.args
            self.answer(b"{}", {"X-Error-Code": code}, status)

    def answer(self, content: bytes, headers: dict[str, str], status: int = 200) -> None:
        self.send_response(status)
        for name, value in {"Content-Type": "application/json", **headers}.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    def found(self, name: str, revision: str) -> tuple[Repository, str]:
        if name not in self.hub.repositories:
            raise _Refused(404, "RepoNotFound")
        repository = self.hub.repositories[name]
        if not repository.commits:
            raise _Refused(503, "Unavailable")
        commit = list(repository.commits)[-1] if revision == "main" else revision
        if commit not in repository.commits:
            raise _Refused(404, "RevisionNotFound")
        return repository, commit

    def allowed(self, repository: Repository) -> None:
        if repository.gated and not self.headers.get("Authorization"):
            raise _Refused(401, "GatedRepo")

    def described(self, name: str, rest: list[str]) -> Any:
        what, revision = [*rest, "main"][:2] if rest else ("revision", "main")
        repository, commit = self.found(name, revision)
        if what == "auth-check":
            self.allowed(repository)
            return {}
        folder = repository.commits[commit]
        if what == "tree":
            inside = folder / "/".join(rest[2:])
            recursive = parse_qs(urlsplit(self.path).query).get("recursive", ["false"])[0].lower() in ("1", "true")
            if not inside.is_dir():
                raise _Refused(404, "EntryNotFound")
            return [_entry(folder, item) for item in sorted(inside.rglob("*") if recursive else inside.iterdir())]
        if what == "paths-info":
            body = json.loads(self.body) if self.body.startswith("{") else parse_qs(self.body)
            return [_entry(folder, folder / item) for item in body["paths"] if (folder / item).exists()]
        files = [_entry(folder, item) for item in sorted(folder.rglob("*")) if item.is_file()]
        siblings = [{"rfilename": entry["path"], "blobId": entry["oid"], **entry} for entry in files]
        return {"id": name.partition("/")[2], "sha": commit, "private": False, "tags": [], "siblings": siblings}


def _entry(folder: Path, path: Path) -> dict[str, Any]:
    entry = {"type": "directory", "path": str(path.relative_to(folder)), "oid": "0" * 40, "size": 0}
    if path.is_file():
        entry |= {"type": "file", "size": path.stat().st_size, "oid": _blob(path)}
        if path.suffix in LARGE:
            entry["lfs"] = {"oid": _sha256(path), "sha256": _sha256(path), "size": entry["size"], "pointerSize": 130}
    return entry


def _sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _blob(path: Path) -> str:
    content = path.read_bytes()
    return hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()
