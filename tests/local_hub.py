"""A hub on this machine: the few endpoints of huggingface.co that huggingface_hub uses to list and download files. Like
the real one, it redirects downloads to another host, here `localhost` instead of 127.0.0.1.
"""

from __future__ import annotations

import hashlib
import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote, urlsplit

TOKEN = "hf_" + "x" * 34
_API = re.compile(r"/api/models/([^/]+/[^/]+)(?:/revision/([^/]+))?")
_FILE = re.compile(r"/([^/]+/[^/]+)/resolve/([^/]+)/(.+)")
_CONTENT = re.compile(r"/cdn/([0-9a-f]{64})")


@dataclass
class Repository:
    files: dict[str, bytes]
    commit: str
    access: str = "public"
    """public, private, gated (no account has access), or for an account (needs TOKEN)."""
    stated_sha256: dict[str, str] = field(default_factory=dict)
    """Hashes that the hub states, if they are not those of the content."""
    has_xet: bool = False
    """Whether the Xet client downloads the files."""

    def sha256(self, path: str) -> str:
        return self.stated_sha256.get(path) or hashlib.sha256(self.files[path]).hexdigest()


@dataclass
class Request:
    method: str
    path: str
    range: str | None
    token: str | None


class LocalHub:
    def __init__(self) -> None:
        self.repositories: dict[str, Repository] = {}
        self.requests: list[Request] = []
        self.status: int | None = None
        """If set, every request is answered with this status."""
        self.breaks_after: list[int] = []
        """For each of the next downloads, the bytes after which the connection breaks."""
        self.ignores_ranges = False
        self.gate: threading.Event | None = None
        """If set, a download that is about to break waits for this event first."""
        self.server = _Server(("127.0.0.1", 0), _Handler)
        self.server.daemon_threads = True
        self.server.hub = self  # type: ignore[attr-defined]
        self.port = self.server.server_address[1]
        self.url = f"http://127.0.0.1:{self.port}"

    def add(self, name: str, files: dict[str, bytes], commit: str = "", **facts: Any) -> Repository:
        commit = commit or hashlib.sha1(repr(sorted(files)).encode()).hexdigest()
        self.repositories[name] = Repository(files, commit, **facts)
        return self.repositories[name]

    @property
    def downloads(self) -> list[Request]:
        return [one for one in self.requests if one.method == "GET" and one.path.startswith("/cdn/")]


@contextmanager
def local_hub() -> Iterator[LocalHub]:
    hub = LocalHub()
    thread = threading.Thread(target=hub.server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield hub
    finally:
        if hub.gate is not None:
            hub.gate.set()
        hub.server.shutdown()
        hub.server.server_close()
        thread.join()


class _Server(ThreadingHTTPServer):
    def handle_error(self, *_: object) -> None:
        """Says nothing about clients that leave in the middle of a download."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    @property
    def hub(self) -> LocalHub:
        found: LocalHub = self.server.hub  # type: ignore[attr-defined]
        return found

    def log_message(self, *_: object) -> None: ...

    def do_HEAD(self) -> None:
        self._serve()

    def do_GET(self) -> None:
        self._serve()

    def _serve(self) -> None:
        path = unquote(urlsplit(self.path).path)
        token = (self.headers["Authorization"] or "").removeprefix("Bearer ") or None
        self.hub.requests.append(Request(self.command, path, self.headers["Range"], token))
        if self.hub.status is not None:
            self._answer(self.hub.status)
        elif found := _API.fullmatch(path):
            self._show(found[1], found[2] or "main", token)
        elif found := _FILE.fullmatch(path):
            self._redirect(found[1], found[2], found[3], token)
        elif found := _CONTENT.fullmatch(path):
            self._send(found[1])
        else:
            self._answer(404)

    def _spelled(self, name: str) -> str:
        """Returns the name of a repository as it was added. The hub ignores capitals."""
        return next((one for one in self.hub.repositories if one.lower() == name.lower()), name)

    def _repository(self, name: str, revision: str, token: str | None) -> Repository | None:
        """Returns the repository, or answers with an error and returns None."""
        found = self.hub.repositories.get(self._spelled(name))
        if token not in (None, TOKEN):
            self._answer(401, {"X-Error-Message": "Invalid credentials in Authorization header"})
        elif found is None or (found.access == "private" and token is None):
            self._answer(404 if token else 401, {"X-Error-Code": "RepoNotFound"})
        elif found.access == "forbidden":
            self._answer(403, {"X-Error-Message": "your token lacks a permission"})
        elif revision not in ("main", found.commit):
            self._answer(404, {"X-Error-Code": "RevisionNotFound"})
        else:
            return found
        return None

    def _show(self, name: str, revision: str, token: str | None) -> None:
        found = self._repository(name, revision, token)
        if found is None:
            return
        siblings = [
            {
                "rfilename": path,
                "size": len(content),
                "blobId": hashlib.sha1(content).hexdigest(),
                "lfs": {"sha256": found.sha256(path), "size": len(content), "pointerSize": 134},
            }
            for path, content in found.files.items()
        ]
        self._answer(
            200, body=json.dumps({"id": self._spelled(name), "sha": found.commit, "siblings": siblings}).encode()
        )

    def _redirect(self, name: str, revision: str, path: str, token: str | None) -> None:
        found = self._repository(name, revision, token)
        if found is None:
            return
        if found.access == "gated" or (found.access == "account" and token is None):
            self._answer(403 if token else 401, {"X-Error-Code": "GatedRepo"})
            return
        if path not in found.files:
            self._answer(404, {"X-Error-Code": "EntryNotFound", "X-Repo-Commit": found.commit})
            return
        xet = {"X-Xet-Hash": "0" * 64, "X-Xet-Refresh-Route": f"{self.hub.url}/xet"} if found.has_xet else {}
        self._answer(
            302,
            {
                **xet,
                "Location": f"http://localhost:{self.hub.port}/cdn/{hashlib.sha256(found.files[path]).hexdigest()}",
                "X-Repo-Commit": found.commit,
                "X-Linked-Etag": f'"{found.sha256(path)}"',
                "X-Linked-Size": str(len(found.files[path])),
            },
        )

    def _send(self, digest: str) -> None:
        contents = (content for one in self.hub.repositories.values() for content in one.files.values())
        content = next(content for content in contents if hashlib.sha256(content).hexdigest() == digest)
        wanted = re.fullmatch(r"bytes=(\d+)-", self.headers["Range"] or "")
        start = int(wanted[1]) if wanted and not self.hub.ignores_ranges else 0
        headers = {"ETag": f'"{digest}"', "Accept-Ranges": "bytes"}
        if start:
            headers["Content-Range"] = f"bytes {start}-{len(content) - 1}/{len(content)}"
        n = self.hub.breaks_after.pop(0) if self.hub.breaks_after and self.command == "GET" else None
        self._answer(206 if start else 200, headers, content[start:], n)

    def _answer(
        self, status: int, headers: dict[str, str] | None = None, body: bytes = b"", n_bytes_sent: int | None = None
    ) -> None:
        self.send_response(status)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command == "HEAD":
            return
        self.wfile.write(body[:n_bytes_sent])
        if n_bytes_sent is not None:
            self.wfile.flush()
            if self.hub.gate is not None:
                self.hub.gate.wait()
            self.close_connection = True
