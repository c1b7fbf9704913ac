"""A small HTTP server on a unix socket, whose answers a test sets, and which records its requests. Also runs llmctl as
its client, in another process and with a home directory of its own.
"""

from __future__ import annotations

import json
import os
import socketserver
import subprocess
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

Json = dict[str, Any]

CHAT = "POST /v1/chat/completions"
USAGE = {"prompt_tokens": 15, "completion_tokens": 2}
SESSION = {"reused_prompt_tokens": 12, "prefilled_prompt_tokens": 3, "session_reset_reason": "exact_prefix"}


@dataclass
class Asked:
    method: str
    path: str
    body: Json | None


class Exchange(BaseHTTPRequestHandler):
    """A request. Routes send their answers with its methods."""

    protocol_version = "HTTP/1.1"
    server: FakeDaemon

    def setup(self) -> None:
        super().setup()
        self.client_address = ("unix", 0)

    def log_message(self, *_: object) -> None:
        pass

    def answer(self, body: Json | str, status: int = 200, headers: dict[str, str] | None = None) -> None:
        payload = body.encode() if isinstance(body, str) else json.dumps(body).encode()
        self.send_response(status)
        for name, value in {"content-length": str(len(payload)), **(headers or {})}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(payload)

    def refuse(self, status: int, code: str, message: str, headers: dict[str, str] | None = None) -> None:
        self.answer({"error": {"code": code, "message": message}}, status, headers)

    def begin_stream(self) -> None:
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("transfer-encoding", "chunked")
        self.end_headers()

    def send(self, data: Json | str) -> None:
        """Sends an event. `data` is JSON, or a text that is sent unchanged, such as a comment or [DONE]."""
        line = data if isinstance(data, str) else f"data: {json.dumps(data)}"
        payload = f"{line}\n\n".encode()
        self.wfile.write(f"{len(payload):x}\r\n".encode() + payload + b"\r\n")
        self.wfile.flush()

    def end_stream(self) -> None:
        self.send("data: [DONE]")
        self.wfile.write(b"0\r\n\r\n")

    def client_left(self) -> bool:
        """Waits until the client closes its sending direction. Returns False if the client sends more instead."""
        return self.rfile.read(1) == b""

    def _serve(self) -> None:
        length = int(self.headers.get("content-length") or 0)
        body = json.loads(self.rfile.read(length)) if length else None
        self.server.asked.append(Asked(self.command, self.path, body))
        route = self.server.routes.get(f"{self.command} {self.path}")
        if route is None:
            self.refuse(404, "not_found", "There is nothing at this address.")
        else:
            route(self)

    do_GET = do_POST = do_DELETE = _serve


Route = Callable[[Exchange], None]


class FakeDaemon(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
    daemon_threads = True

    def __init__(self, path: Path) -> None:
        self.path = str(path)
        self.routes: dict[str, Route] = {}
        self.asked: list[Asked] = []
        super().__init__(self.path, Exchange)
        self._thread = threading.Thread(target=self.serve_forever, args=(0.01,))
        self._thread.start()

    def handle_error(self, request: Any, client_address: Any) -> None:
        if not isinstance(sys.exception(), ConnectionError):  # a client that disconnects is not an error
            super().handle_error(request, client_address)

    def route(self, request: str, answer: Route | Json | str) -> None:
        if isinstance(answer, dict | str):
            body = answer
            self.routes[request] = lambda exchange: exchange.answer(body)
        else:
            self.routes[request] = answer

    def stop(self) -> None:
        self.shutdown()
        self._thread.join()
        self.server_close()


# --- a chat ----------------------------------------------------------------------------------------------------------


def chunk(content: str) -> dict[str, Any]:
    return {"choices": [{"index": 0, "delta": {"content": content}, "finish_reason": None}]}


LAST = {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}
REPORT = {"choices": [], "usage": USAGE, "session": SESSION}


def echo(exchange: Exchange) -> None:
    """Answers with the last message in capitals, in two pieces with a comment in between."""
    question = str(exchange.server.asked[-1].body["messages"][-1]["content"]).upper()  # type: ignore[index]
    exchange.begin_stream()
    exchange.send({"choices": [{"index": 0, "delta": {"role": "assistant", "content": ""}, "finish_reason": None}]})
    exchange.send(chunk(question[:1]))
    exchange.send(": keep-alive")
    exchange.send(chunk(question[1:]))
    exchange.send(LAST)
    exchange.send(REPORT)
    exchange.end_stream()


def home(daemon: FakeDaemon) -> Path:
    """Returns the directory in which `llmctl` keeps its files."""
    return Path(daemon.path).parent / "state"


def llmctl(daemon: FakeDaemon, *arguments: str, lines: str = "") -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "llmd.ctl", "--socket", daemon.path, *arguments]
    environment = os.environ | {"XDG_STATE_HOME": str(home(daemon))}
    return subprocess.run(
        command, input=lines, capture_output=True, text=True, check=False, timeout=60, env=environment
    )


def asked(daemon: FakeDaemon) -> list[dict[str, Any]]:
    return [request.body for request in daemon.asked if request.body is not None]
