"""Log lines, and systemd's environment."""

from __future__ import annotations

import json
import logging
import os
import socket
from pathlib import Path

from llmd import logs, systemd


def record(message: str, **fields: object) -> logging.LogRecord:
    made = logging.LogRecord("llmd.http", logging.INFO, __file__, 1, message, (), None)
    made.created = 1.5
    vars(made).update(logs.fields(**fields))
    return made


def test_text() -> None:
    line = logs.TextFormatter().format(record("request", status=200, path="/a b", reason=None, quote='x"y\n'))
    assert line == '1970-01-01T00:00:01.500Z info    request status=200 path="/a b" quote="x\\"y\\n"'


def test_json() -> None:
    line = logs.JsonFormatter().format(record("request", status=200, path=Path("/x")))
    assert json.loads(line) == {
        "time": "1970-01-01T00:00:01.500Z",
        "level": "info",
        "logger": "llmd.http",
        "message": "request",
        "status": 200,
        "path": "/x",
    }


def test_a_line_stays_a_line() -> None:
    for formatter in (logs.TextFormatter(), logs.JsonFormatter()):
        assert "\n" not in formatter.format(record("request", session="a\nb", user="\r\n"))


def test_notify(tmp_path: Path) -> None:
    assert systemd.notify("READY=1", environment={}) is False
    assert systemd.notify("READY=1", environment={"NOTIFY_SOCKET": str(tmp_path / "none")}) is False
    for address in (str(tmp_path / "notify"), f"@llmd-test-{os.getpid()}"):
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
            manager.bind(address.replace("@", "\0"))
            assert systemd.notify("READY=1", "STATUS=x", environment={"NOTIFY_SOCKET": address})
            assert manager.recv(100) == b"READY=1\nSTATUS=x"


def test_watchdog_interval() -> None:
    assert systemd.watchdog_interval_s({}) is None
    assert systemd.watchdog_interval_s({"WATCHDOG_USEC": "60000000"}) == 30
    assert systemd.watchdog_interval_s({"WATCHDOG_USEC": "60000000", "WATCHDOG_PID": "1"}) is None
    assert systemd.watchdog_interval_s({"WATCHDOG_USEC": "x"}) is None


def test_sockets_for_somebody_else() -> None:
    environment = {"LISTEN_FDS": "1", "LISTEN_PID": "1", "LISTEN_FDNAMES": "x"}
    assert systemd.listen_sockets(environment) == [] and environment == {}
