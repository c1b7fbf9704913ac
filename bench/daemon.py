"""Starts a server for one measurement, with its files in a temporary directory, and stops it at the end."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType

from .client import RefusedError, ask

START_S_MAX = 120.0
STOP_S_MAX = 60.0


# Environment variables that build.sh sets for every program that it starts. The measured servers run without them, as
# servers of users do.
_NOT_A_USERS = ("GOMP_SPINCOUNT", "GGML_NO_BACKTRACE")
_LIBRARY = "LLMD_LIBLLM_VARIANT"
"""Selects the build of libllm, and is no option of llmd."""


def clean_environment() -> dict[str, str]:
    """Returns this process's environment without options of llmd. Variables that build.sh sets are left out, too."""
    return {
        name: value
        for name, value in os.environ.items()
        if name == _LIBRARY or (not name.startswith("LLMD_") and name not in _NOT_A_USERS)
    }


class StartError(Exception):
    """Raised if the server did not start. The message contains the server's log."""


class Server:
    """A server process that listens on a port of this machine. The server is used in a `with` statement. The statement
    waits until the server is ready, and stops the server at the end.
    """

    def __init__(self, command: list[str], directory: tempfile.TemporaryDirectory[str], ready_at: str) -> None:
        """Starts the server. `directory` gets the server's log and is removed at the end. `ready_at` is a URL path that
        the server answers with status 200 as soon as the model is loaded.
        """
        self._directory = directory
        self._ready_at = ready_at
        self._log = Path(directory.name) / "log"
        self._started_s = time.monotonic()
        with self._log.open("wb") as sink:
            self._process = subprocess.Popen(command, stdout=sink, stderr=sink, env=clean_environment())
        self.pid = self._process.pid
        self.port = 0
        self.ready_s = 0.0
        """Seconds from the start of the process until the server was ready, with an error of at most 10 ms."""

    def __enter__(self) -> Server:
        try:
            self._wait_until_ready()
        except BaseException:
            self._stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop()

    def metric(self, name: str) -> float:
        """Returns the value of one metric in the answer of /metrics."""
        match = re.search(rf"^{name} (\S+)$", ask(self.port, "GET", "/metrics").decode(), re.MULTILINE)
        if match is None:
            raise KeyError(name)
        return float(match[1])

    def is_ready(self) -> bool:
        """Returns whether the server is ready. Sets `port` as soon as the server's log shows the port. Called
        repeatedly while the server starts.
        """
        match = re.search(r"http://127\.0\.0\.1:(\d+)", self._log.read_text(errors="replace"))
        if match is None:
            return False
        self.port = int(match[1])
        try:
            ask(self.port, "GET", self._ready_at)
        except (OSError, RefusedError):
            return False
        return True

    def _wait_until_ready(self) -> None:
        deadline = time.monotonic() + START_S_MAX
        while not self.is_ready():
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise StartError("the server did not start:\n" + self._log.read_text(errors="replace"))
            time.sleep(0.01)
        self.ready_s = time.monotonic() - self._started_s

    def _stop(self) -> None:
        self._process.terminate()
        try:
            self._process.wait(STOP_S_MAX)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._directory.cleanup()


def daemon(model: str, *, program: Sequence[str] = (), **options: str | int | Path) -> Server:
    """Starts llmd and returns it. `options` are options of llmd, with underscores in their names: ctx_size=8192.
    `program` is the command that runs llmd, by default the one beside this interpreter.
    """
    directory = tempfile.TemporaryDirectory(prefix="llmd-bench-")
    root = Path(directory.name)
    given = {"port": 0, "socket": root / "socket", "state_dir": root / "state", **options}
    flags = [f"--{name.replace('_', '-')}={value}" for name, value in given.items()]
    command = program or [str(Path(sys.executable).parent / "llmd")]
    return Server([*command, f"--model={model}", *flags], directory, "/ready")


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
