"""A daemon of one's own: started in a temporary directory, asked over TCP, stopped at the end."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from types import TracebackType
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.request import Request, urlopen

START_S_MAX = 120.0
STOP_S_MAX = 60.0


class DaemonError(Exception):
    """The daemon did not start, or refused a request; the message says why."""


class Daemon:
    """`with Daemon(model, option=value, ...) as daemon:`; options are those of llmd, with underscores."""

    def __init__(self, model: str, **options: str | int) -> None:
        self._directory = tempfile.TemporaryDirectory(prefix="llmd-bench-")
        root = Path(self._directory.name)
        self.log = root / "log"
        given = {"port": 0, "socket": root / "socket", "state_dir": root / "state", **options}
        flags = [f"--{name.replace('_', '-')}={value}" for name, value in given.items()]
        program = Path(sys.executable).parent / "llmd"
        # Settings of the caller's own daemon must not reach this one.
        environment = {name: value for name, value in os.environ.items() if not name.startswith("LLMD_")}
        with self.log.open("wb") as log:
            self._process = subprocess.Popen([program, f"--model={model}", *flags], stderr=log, env=environment)
        self.pid = self._process.pid
        self.port = 0

    def __enter__(self) -> Daemon:
        try:
            self.port = self._wait_until_ready()
        except BaseException:
            self._stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop()

    def get(self, path: str) -> Any:
        return self._ask(Request(f"http://127.0.0.1:{self.port}{path}"))

    def post(self, path: str, body: dict[str, Any]) -> Any:
        data = json.dumps(body).encode()
        headers = {"content-type": "application/json"}
        return self._ask(Request(f"http://127.0.0.1:{self.port}{path}", data, headers))

    def delete(self, path: str) -> None:
        self._ask(Request(f"http://127.0.0.1:{self.port}{path}", method="DELETE"))

    def metric(self, name: str) -> float:
        """One value of /metrics."""
        with urlopen(f"http://127.0.0.1:{self.port}/metrics") as answer:
            match = re.search(rf"^{name} (\S+)$", answer.read().decode(), re.MULTILINE)
        if match is None:
            raise DaemonError(f"/metrics has no {name}")
        return float(match[1])

    def _ask(self, request: Request) -> Any:
        try:
            with urlopen(request) as answer:
                return json.load(answer)
        except HTTPError as error:
            raise DaemonError(f"{request.selector}: {error.code}: {error.read().decode()}") from None

    def _wait_until_ready(self) -> int:
        deadline = time.monotonic() + START_S_MAX
        while time.monotonic() < deadline and self._process.poll() is None:
            match = re.search(r"http://127\.0\.0\.1:(\d+)", self.log.read_text())
            if match is not None and _answers(int(match[1])):
                return int(match[1])
            time.sleep(0.05)
        raise DaemonError("the daemon did not start:\n" + self.log.read_text())

    def _stop(self) -> None:
        self._process.terminate()
        try:
            self._process.wait(STOP_S_MAX)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._directory.cleanup()


def _answers(port: int) -> bool:
    try:
        with urlopen(f"http://127.0.0.1:{port}/ready") as answer:
            return bool(answer.status == 200)
    except URLError:
        return False
