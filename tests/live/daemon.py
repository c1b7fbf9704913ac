"""`llmd` as a process, as its users start it, and a simple HTTP client."""

from __future__ import annotations

import http.client
import json
import re
import signal
import subprocess
import sys
from collections.abc import Generator
from dataclasses import dataclass, field
from pathlib import Path

from llmd.engine import segment
from llmd.engine.native import SessionTable
from tests.serving import Events, Json, environment_without_options, parse_events

DEADLINE_S = 60.0


def segment_file(socket: Path) -> Path:
    """Returns the path of the newest segment that the lock file names."""
    named = segment.names(socket)
    return Path("/dev/shm") / (named[0].lstrip("/") if named else "none")


@dataclass
class Process:
    """A running daemon."""

    popen: subprocess.Popen[str]
    socket: Path
    port: int = 0
    said: list[Json] = field(default_factory=list)
    """The log lines so far."""

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def wait_for(self, message: str) -> Json:
        """Waits for the next log line with that message and returns it."""
        assert self.popen.stderr is not None
        seen = []
        for line in self.popen.stderr:
            seen.append(line)
            if line.startswith("ggml_"):
                continue  # the code of a device's driver writes to stderr directly
            found: Json = json.loads(line)
            self.said.append(found)
            if found["message"] == message:
                return found
        raise AssertionError(f"llmd ended without saying {message!r}: {''.join(seen[-20:])}")

    def ask(self, method: str, path: str, body: Json | None = None) -> tuple[int, Json]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=DEADLINE_S)
        try:
            connection.request(method, path, json.dumps(body) if body is not None else None)
            response = connection.getresponse()
            return response.status, json.loads(response.read())
        finally:
            connection.close()

    def do(self, method: str, path: str, body: Json | None = None) -> Json:
        status, answer = self.ask(method, path, body)
        assert status == 200, answer
        return answer

    def chat(self, messages: list[Json], **fields: object) -> Json:
        body = {"messages": messages, "max_tokens": 12, "temperature": 0, "ignore_eos": True, **fields}
        return self.do("POST", "/v1/chat/completions", body)

    def stream(self, body: Json) -> Generator[bytes, None, None]:
        """Yields the lines of an event stream. Closing the iterator closes the connection."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=DEADLINE_S)
        try:
            connection.request("POST", "/v1/chat/completions", json.dumps({**body, "stream": True}))
            response = connection.getresponse()
            assert response.status == 200, response.read()
            yield from response
        finally:
            connection.close()

    def events(self, body: Json) -> Events:
        return parse_events(b"".join(self.stream(body)))

    @property
    def segment(self) -> Path:
        return segment_file(self.socket)

    def session_table(self) -> SessionTable:
        return SessionTable.open(segment.name_in_use(self.socket) or "")

    def stop(self) -> None:
        self.popen.send_signal(signal.SIGTERM)
        self.wait_for("stopped")
        assert self.popen.wait(DEADLINE_S) == 0

    def kill(self) -> None:
        self.popen.kill()
        self.popen.wait(DEADLINE_S)


class Daemons:
    """Starts daemons one after the other with the same socket and state directory. Ends those that a failed test
    leaves.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.socket = directory / "run" / "llmd.sock"
        self._started: list[subprocess.Popen[str]] = []

    def start(self, model: str, *extra: str, **environment: str) -> Process:
        options = {
            "--model": model,
            "--port": "0",
            "--socket": str(self.socket),
            "--state-dir": str(self.directory / "state"),
            "--ctx-size": "2048",
            "--threads": "1",
            "--log-format": "json",
        }
        popen = subprocess.Popen(
            [sys.executable, "-m", "llmd", *(part for pair in options.items() for part in pair), *extra],
            stderr=subprocess.PIPE,
            text=True,
            env={**environment_without_options(), **environment},
        )
        self._started.append(popen)
        process = Process(popen, self.socket)
        found = re.search(r"http://127\.0\.0\.1:(\d+)", process.wait_for("serving")["addresses"])
        assert found is not None
        process.port = int(found[1])
        return process

    def close(self) -> None:
        for popen in self._started:
            if popen.poll() is None:
                popen.kill()
            popen.wait()
            if popen.stderr is not None:
                popen.stderr.close()
        # A killed daemon leaves its segment for the next daemon, but no other daemon starts here.
        segment_file(self.socket).unlink(missing_ok=True)
