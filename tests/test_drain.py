"""POST /v1/drain: the daemon ends without cutting an answer, and with all its sessions saved."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from llmd.ctl.client import _UnixConnection
from tests.serving import chat
from tests.test_process import ENDLESS, Process, Start, stream


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    start = Start(tmp_path)
    yield start
    start.close()


def drain(process: Process) -> dict[str, Any]:
    connection = _UnixConnection(str(process.socket), 60)
    connection.request("POST", "/v1/drain")
    response = connection.getresponse()
    answer: dict[str, Any] = json.loads(response.read())
    connection.close()
    assert response.status == 200
    return answer


def test_running_answers_end_and_sessions_are_saved(start: Start) -> None:
    process = start("--model", "sim:dense,step_us=2000", "--shutdown-timeout", "0")
    connection, response = stream(process, chat("one", max_tokens=200, ignore_eos=True, session_id="a"))
    answer = drain(process)
    assert (answer["status"], answer["requests"]) == ("stopping", 1)
    status, error = process.ask("POST", "/v1/chat/completions", chat())
    assert (status, error["error"]["code"]) == (503, "shutting_down")
    assert process.ask("GET", "/ready")[0] == 503
    tail = response.read()
    connection.close()
    assert tail.endswith(b"data: [DONE]\n\n") and b"shutting_down" not in tail
    assert process.popen.wait(timeout=60) == 0
    again = start("--model", "sim:dense,step_us=2000")
    [session] = again.ask("GET", "/v1/sessions")[1]["data"]
    assert session["id"] == "a" and session["tokens"] > 200


def test_a_signal_limits_a_drain(start: Start) -> None:
    process = start("--model", ENDLESS, "--ctx-size", "200000", "--shutdown-timeout", "0.05")
    connection, response = stream(process, chat(max_tokens=100_000))
    drain(process)
    process.popen.send_signal(signal.SIGTERM)
    assert b'"code":"shutting_down"' in response.read()
    connection.close()
    assert process.popen.wait(timeout=60) == 0


def test_an_idle_daemon_ends_at_once(start: Start) -> None:
    process = start()
    assert drain(process)["requests"] == 0
    assert process.popen.wait(timeout=60) == 0


def test_only_administrators_drain(start: Start) -> None:
    process = start()
    status, error = process.ask("POST", "/v1/drain")
    assert (status, error["error"]["code"]) == (403, "admin_required")
    assert process.ask("GET", "/ready")[0] == 200
