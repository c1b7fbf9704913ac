"""A client of llmd over the unix socket. Sends requests, and decodes answers, errors and server-sent events. Prints
nothing.
"""

from __future__ import annotations

import fcntl
import http.client
import json
import os
import socket
import stat
from collections.abc import Generator, Iterator
from contextlib import suppress
from typing import Any
from urllib.parse import quote

import llmd

Json = dict[str, Any]

ANSWER_BYTES_MAX = 64 << 20
EVENT_BYTES_MAX = 16 << 20
_KEEP_ALIVE = b": keep-alive"


class DaemonAbsent(Exception):
    """Raised if llmctl gets no complete answer from a daemon. For example, no daemon answered, the answer broke off, or
    another program sent it. `reason` is the cause, as a key of advice.SENTENCES.
    """

    def __init__(self, socket_path: str, reason: str, detail: str = "") -> None:
        super().__init__(detail or reason)
        self.socket_path = socket_path
        self.reason = reason
        self.detail = detail


class DaemonRefused(Exception):
    """Raised if the daemon answered with an error. `status` is the HTTP status. If the error is an event of a stream,
    the status is 200. `error` is the error object of the answer.
    """

    def __init__(self, status: int, error: Json, retry_after: str | None = None) -> None:
        super().__init__(str(error.get("message") or f"HTTP status {status}"))
        self.status = status
        self.error = error
        self.code = str(error.get("code") or "")
        self.retry_after = retry_after


# The reason of DaemonAbsent for each type of exception. The first type that matches counts. If none matches, the reason
# is "unreachable" before the connection exists, and "gone" afterwards.
_REASONS: tuple[tuple[type[Exception], str], ...] = (
    (FileNotFoundError, "missing"),
    (NotADirectoryError, "missing"),
    (PermissionError, "forbidden"),
    (TimeoutError, "silent"),
    (http.client.RemoteDisconnected, "gone"),
    (http.client.BadStatusLine, "foreign"),
    (http.client.UnknownProtocol, "foreign"),
    (http.client.LineTooLong, "foreign"),
)


class _UnixConnection(http.client.HTTPConnection):
    def __init__(self, socket_path: str, timeout_s: float | None) -> None:
        super().__init__("localhost", timeout=timeout_s)
        self._socket_path = socket_path

    def connect(self) -> None:
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            connection.settimeout(self.timeout)
            connection.connect(self._socket_path)
        except BaseException:
            connection.close()
            raise
        self.sock = connection


class Client:
    """Sends requests to the daemon, each over a new connection. Reusing a connection would save little, because llmctl
    sends few requests. To cancel an answer, llmctl closes the connection.
    """

    def __init__(self, socket_path: str, timeout_s: float | None, stream_timeout_s: float | None = None) -> None:
        self.socket_path = socket_path
        self.timeout_s = timeout_s
        self.stream_timeout_s = stream_timeout_s
        """Maximum time in seconds to wait for output of llmd, for streams and for requests that move a session's state.
        None if there is no limit.
        """

    def live(self) -> Json:
        return self._ask("GET", "/live")

    def ready(self) -> tuple[int, Json]:
        """Returns the HTTP status of /ready, and its answer."""
        return self._look("/ready")

    def metrics(self) -> dict[str, float]:
        with _Exchange(self, "GET", "/metrics", timeout_s=self.timeout_s) as exchange:
            return samples(exchange.text())

    def models(self) -> Json:
        return self._ask("GET", "/v1/models")

    def sessions(self) -> Json:
        return self._ask("GET", "/v1/sessions")

    def session(self, name: str, owner: str | None = None) -> Json:
        return self._ask("GET", _session_path(name, "", owner))

    def reset(self, name: str, owner: str | None = None) -> Json:
        return self._ask("POST", _session_path(name, "/reset", owner))

    def close(self, name: str, owner: str | None = None) -> Json:
        return self._ask("DELETE", _session_path(name, "", owner))

    def fork(
        self, name: str, new_name: str, at: int | str | None, owner: str | None = None, *, replace: bool = False
    ) -> Json:
        body = {"session_id": new_name} | ({} if at is None else {"at": at}) | ({"replace": True} if replace else {})
        return self._move(_session_path(name, "/fork", owner), body)

    def park(self, name: str, owner: str | None = None) -> Json:
        return self._move(_session_path(name, "/park", owner))

    def pin(self, name: str, pinned: bool, owner: str | None = None) -> Json:
        return self._ask("POST", _session_path(name, "/pin", owner), {"pinned": pinned})

    def rename(self, name: str, new_name: str, owner: str | None = None) -> Json:
        return self._ask("POST", _session_path(name, "/rename", owner), {"session_id": new_name})

    def save(self, name: str, label: str, owner: str | None = None) -> Json:
        return self._move(_session_path(name, "/save", owner), {"name": label})

    def load(self, name: str, label: str, owner: str | None = None, *, replace: bool = False) -> Json:
        body: Json = {"name": label, **({"replace": True} if replace else {})}
        return self._move(_session_path(name, "/load", owner), body)

    def saved(self, owner: str | None = None) -> Json:
        return self._ask("GET", f"/v1/saved{_query(owner)}")

    def remove_saved(self, label: str, owner: str | None = None) -> Json:
        return self._ask("DELETE", f"/v1/saved/{_quoted(label)}{_query(owner)}")

    def explain(self, name: str, owner: str | None = None) -> Json:
        return self._ask("GET", _session_path(name, "/explain", owner))

    def chat(self, request: Json) -> Generator[Json, None, None]:
        """Yields the chunks of a streamed chat completion. To cancel the completion, close the generator."""
        body = request | {"stream": True, "stream_options": {"include_usage": True}}
        with _Exchange(self, "POST", "/v1/chat/completions", body, timeout_s=self.stream_timeout_s) as exchange:
            yield from exchange.events()

    def feed(self) -> Generator[Json, None, None]:
        """Yields the events of GET /v1/feed, one per second. Raises DaemonAbsent if the daemon stops. To end the feed,
        close the generator.
        """
        with _Exchange(self, "GET", "/v1/feed", timeout_s=self.timeout_s) as exchange:
            yield from exchange.events()

    def _move(self, path: str, body: Json | None = None) -> Json:
        with _Exchange(self, "POST", path, body, timeout_s=self.stream_timeout_s) as exchange:
            return exchange.json()

    def _ask(self, method: str, path: str, body: Json | None = None) -> Json:
        with _Exchange(self, method, path, body, timeout_s=self.timeout_s) as exchange:
            return exchange.json()

    def _look(self, path: str) -> tuple[int, Json]:
        """Returns the HTTP status and the answer of a path that reports the state of llmd, such as /ready. Status 503
        raises no error, because its answer says why llmd is not ready.
        """
        with _Exchange(self, "GET", path, tolerate=(503,), timeout_s=self.timeout_s) as exchange:
            return exchange.status, exchange.json()


class _Exchange:
    """One request and its answer. If the connection fails in any way, raises DaemonAbsent."""

    def __init__(
        self,
        client: Client,
        method: str,
        path: str,
        body: Json | None = None,
        tolerate: tuple[int, ...] = (),
        *,
        timeout_s: float | None,
    ) -> None:
        self._socket_path = client.socket_path
        self._connection = _UnixConnection(client.socket_path, timeout_s)
        try:
            self._connect()
            self._send(method, path, body)
            if self.status >= 400 and self.status not in tolerate:
                raise self._refusal()
        except BaseException:
            self._connection.close()
            raise

    def __enter__(self) -> _Exchange:
        return self

    def __exit__(self, *_: object) -> None:
        self._response.close()
        self._connection.close()

    def _connect(self) -> None:
        try:
            self._connection.connect()
        except ConnectionRefusedError as error:
            raise DaemonAbsent(self._socket_path, _why_refused(self._socket_path), str(error)) from error
        except OSError as error:
            raise self._absent(error, "unreachable") from error

    def _send(self, method: str, path: str, body: Json | None) -> None:
        headers = {"user-agent": f"llmctl/{llmd.__version__}", "accept": "application/json"}
        payload = None
        if body is not None:
            payload = json.dumps(body).encode()
            headers["content-type"] = "application/json"
        try:
            # Sending fails if llmd refuses the request before all of the request has arrived. llmd's answer then says
            # why.
            with suppress(BrokenPipeError, ConnectionResetError):
                self._connection.request(method, path, body=payload, headers=headers)
            self._response = self._connection.getresponse()
        except (OSError, http.client.HTTPException) as error:
            raise self._absent(error) from error
        self.status = self._response.status

    def text(self) -> str:
        try:
            return self._response.read(ANSWER_BYTES_MAX).decode("utf-8", "replace")
        except (OSError, http.client.HTTPException) as error:
            raise self._absent(error) from error

    def json(self) -> Json:
        return self._object(self.text())

    def events(self) -> Iterator[Json]:
        """Yields the data of each event of a stream until the event [DONE]. Yields each comment as {"comment": text}.
        Skips comments that only keep the connection alive.
        """
        while line := self._line():
            if line.startswith(b":") and line.strip() != _KEEP_ALIVE:
                yield {"comment": line[1:].strip().decode("utf-8", "replace")}
            if not line.startswith(b"data:"):
                continue
            data = line[5:].strip()
            if data == b"[DONE]":
                return
            event = self._object(data.decode("utf-8", "replace"))
            if isinstance(event.get("error"), dict):
                raise DaemonRefused(self.status, event["error"])
            yield event
        raise DaemonAbsent(self._socket_path, "gone", "the stream broke off")

    def _line(self) -> bytes:
        try:
            return self._response.readline(EVENT_BYTES_MAX)
        except (OSError, http.client.HTTPException) as error:
            raise self._absent(error) from error

    def _object(self, text: str) -> Json:
        try:
            found = json.loads(text)
        except (ValueError, RecursionError):
            found = None
        if not isinstance(found, dict):
            raise DaemonAbsent(self._socket_path, "foreign", f"it answered {text[:80]!r}")
        return found

    def _refusal(self) -> DaemonRefused | DaemonAbsent:
        text = self.text()
        try:
            error = json.loads(text)["error"]
        except (ValueError, LookupError, TypeError, RecursionError):
            error = None
        if not isinstance(error, dict):
            error = {"message": text.strip() or f"HTTP status {self.status}"}
        if error.get("code") == "model_loading":
            return DaemonAbsent(self._socket_path, "starting", str(error.get("message")))
        return DaemonRefused(self.status, error, self._response.getheader("retry-after"))

    def _absent(self, error: Exception, otherwise: str = "gone") -> DaemonAbsent:
        found = next((reason for kind, reason in _REASONS if isinstance(error, kind)), otherwise)
        return DaemonAbsent(self._socket_path, found, str(error))


def _why_refused(socket_path: str) -> str:
    """Returns the reason of DaemonAbsent if the socket refused a connection. A daemon that is starting has a socket,
    but does not accept connections yet. The reason is then "starting".
    """
    try:
        if not stat.S_ISSOCK(os.stat(socket_path).st_mode):
            return "no_socket"
    except OSError:
        return "refused"
    return "starting" if is_daemon_alive(socket_path) else "refused"


def is_daemon_alive(socket_path: str) -> bool:
    """Returns whether a daemon uses this socket. A daemon holds a lock on the lock file next to its socket until the
    daemon ends.
    """
    try:
        with open(f"{socket_path}.lock") as lock:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        pass
    return False


def samples(text: str) -> dict[str, float]:
    """Returns the values in a text of Prometheus metrics. A key is the name of a metric with its labels. Skips lines
    that have no value.
    """
    found = {}
    for line in text.splitlines():
        name, _, value = line.rpartition(" ")
        if name and not line.startswith("#"):
            try:
                found[name] = float(value)
            except ValueError:
                continue
    return found


def _session_path(name: str, action: str, owner: str | None) -> str:
    return f"/v1/sessions/{_quoted(name)}{action}{_query(owner)}"


def _query(owner: str | None) -> str:
    return "" if owner is None else f"?owner={_quoted(owner)}"


def _quoted(text: str) -> str:
    return quote(text, safe="", errors="surrogateescape")
