"""A small blocking HTTP client for servers on this machine. Measures the times of a streamed chat answer as a user
experiences them.
"""

from __future__ import annotations

import http.client
import json
import time
from dataclasses import dataclass
from typing import Any

Messages = list[dict[str, str]]
TIMEOUT_S = 600.0


class RefusedError(Exception):
    """Raised if the server answers a request with an error. The message quotes the answer."""


def ask(port: int, method: str, path: str, body: dict[str, Any] | None = None) -> bytes:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=TIMEOUT_S)
    try:
        return _answer(connection, method, path, body).read()
    finally:
        connection.close()


def post(port: int, path: str, body: dict[str, Any]) -> Any:
    return json.loads(ask(port, "POST", path, body))


def _answer(
    connection: http.client.HTTPConnection, method: str, path: str, body: dict[str, Any] | None
) -> http.client.HTTPResponse:
    data = None if body is None else json.dumps(body).encode()
    connection.request(method, path, data, {"content-type": "application/json"})
    answer = connection.getresponse()
    if answer.status != http.client.OK:
        raise RefusedError(f"{method} {path}: {answer.status}: {answer.read().decode(errors='replace')}")
    return answer


@dataclass(frozen=True, slots=True)
class Answer:
    pieces: list[str]
    n_prompt: int
    n_prefilled: int
    first_ms: float
    """Milliseconds from sending the request to the first piece of text."""
    reason: str
    """llmd's word for how the request started, such as exact_prefix, or "" if the server is not llmd."""

    @property
    def text(self) -> str:
        return "".join(self.pieces)


def chat(port: int, messages: Messages, **parameters: Any) -> Answer:
    """Sends a chat request and receives its streamed answer. Raises RefusedError if the server refuses the request, or
    if the stream contains an error.
    """
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=TIMEOUT_S)
    body = {"messages": messages, "stream": True, "stream_options": {"include_usage": True}, **parameters}
    started_s = time.monotonic()
    first_ms = 0.0
    pieces: list[str] = []
    last: dict[str, Any] = {}
    try:
        for line in _answer(connection, "POST", "/v1/chat/completions", body):
            if not line.startswith(b"data: {"):
                continue
            event = json.loads(line[6:])
            if "error" in event:
                raise RefusedError(str(event["error"]))
            piece = _piece(event)
            if piece:
                first_ms = first_ms or (time.monotonic() - started_s) * 1e3
                pieces.append(piece)
            last |= {key: value for key, value in event.items() if key in ("usage", "session", "timings") and value}
    finally:
        connection.close()
    return _answer_of(pieces, first_ms, last)


def _piece(event: dict[str, Any]) -> str:
    choices = event.get("choices") or [{}]
    return str(choices[0].get("delta", {}).get("content") or "")


def _answer_of(pieces: list[str], first_ms: float, last: dict[str, Any]) -> Answer:
    session, timings = last.get("session", {}), last.get("timings", {})
    n_prompt = int(last["usage"]["prompt_tokens"])
    # llmd reports the number of prefilled tokens in `session`, and llama-server reports it as timings.prompt_n.
    n_prefilled = session.get("prefilled_prompt_tokens", timings.get("prompt_n", n_prompt))
    return Answer(pieces, n_prompt, int(n_prefilled), first_ms, str(session.get("session_reset_reason", "")))
