"""`llmd` as a process: sockets, signals, exit statuses, log lines, and systemd."""

from __future__ import annotations

import http.client
import json
import os
import re
import signal
import socket
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import pytest

from llmd.engine import segment
from tests.serving import Json, chat, environment_without_options

ENDLESS = "sim:dense,ctx=1000000,step_us=1000,length=0"


@dataclass
class Process:
    """A running llmd, and the log lines that it has written so far."""

    popen: subprocess.Popen[str]
    log: list[Json]
    port: int
    socket: Path

    @property
    def stderr(self) -> IO[str]:
        assert self.popen.stderr is not None
        return self.popen.stderr

    def wait_for(self, message: str) -> Json:
        """Returns the next log line whose message begins with this text."""
        for line in self.stderr:
            self.log.append(json.loads(line))
            if self.log[-1]["message"].startswith(message):
                return self.log[-1]
        raise AssertionError(f"llmd ended without saying {message!r}: {self.log}")

    def ask(self, method: str, path: str, body: Json | None = None) -> tuple[int, Json]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        try:
            connection.request(method, path, json.dumps(body) if body is not None else None)
            response = connection.getresponse()
            return response.status, json.loads(response.read())
        finally:
            connection.close()


class Start:
    """Starts daemons in a directory of their own, and ends the processes that a failed test leaves."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self.program = [sys.executable, "-m", "llmd"]
        self.prepare: Callable[[], object] | None = None
        """Called in the child before it executes the program."""
        self._started: list[subprocess.Popen[str]] = []

    def arguments(self, *extra: str) -> list[str]:
        fixed = {
            "--model": "sim:dense",
            "--port": "0",
            "--socket": str(self._directory / "run" / "llmd.sock"),
            "--state-dir": str(self._directory / "state"),
            "--log-format": "json",
        }
        return [*self.program, *(part for pair in fixed.items() for part in pair), *extra]

    def popen(self, *extra: str, **environment: str) -> subprocess.Popen[str]:
        popen = subprocess.Popen(
            self.arguments(*extra),
            stderr=subprocess.PIPE,
            text=True,
            env={**environment_without_options(), **environment},
            start_new_session=True,  # without a terminal, as under systemd
            preexec_fn=self._prepare,
        )
        self._started.append(popen)
        return popen

    def _prepare(self) -> None:
        """A program inherits ignored signals. These signals are ignored if the tests run under nohup, or in the
        background of a shell without job control.
        """
        for number in (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT):
            signal.signal(number, signal.SIG_DFL)
        if self.prepare is not None:
            self.prepare()

    def __call__(self, *extra: str, **environment: str) -> Process:
        process = Process(self.popen(*extra, **environment), [], 0, self._directory / "run" / "llmd.sock")
        addresses = process.wait_for("serving")["addresses"]
        found = re.search(r"http://127\.0\.0\.1:(\d+)", addresses)
        process.port = int(found[1]) if found else 0
        return process

    def fails(self, *extra: str, **environment: str) -> tuple[int, str]:
        popen = self.popen(*extra, **environment)
        _, errors = popen.communicate(timeout=60)
        return popen.returncode, errors

    def close(self) -> None:
        for popen in self._started:
            if popen.poll() is None:
                popen.kill()
            popen.wait()
            if popen.stderr is not None:
                popen.stderr.close()
        for name in segment.names(self._directory / "run" / "llmd.sock"):  # a killed daemon leaves its shared memory
            (Path("/dev/shm") / name.lstrip("/")).unlink(missing_ok=True)


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    start = Start(tmp_path)
    yield start
    start.close()


def stream(process: Process, body: Json) -> tuple[http.client.HTTPConnection, http.client.HTTPResponse]:
    """Opens a stream, and waits for its first event."""
    connection = http.client.HTTPConnection("127.0.0.1", process.port, timeout=60)
    connection.request("POST", "/v1/chat/completions", json.dumps({**body, "stream": True}))
    response = connection.getresponse()
    assert response.status == 200 and response.readline().startswith(b"data:")
    return connection, response


def test_a_whole_life(start: Start) -> None:
    process = start()
    assert segment.name_in_use(process.socket) is not None
    assert stat.S_IMODE(process.socket.stat().st_mode) == 0o600
    assert stat.S_IMODE(process.socket.parent.stat().st_mode) == 0o700
    status, answer = process.ask("POST", "/v1/chat/completions", chat(session_id="a"))
    assert status == 200 and answer["session"]["id"] == "a"
    process.popen.send_signal(signal.SIGTERM)
    line = process.wait_for("request")
    assert line["status"] == 200 and line["session"] == "a" and line["reason"] == "new" and line["outcome"] == "length"
    process.wait_for("stopped")
    assert process.popen.wait(timeout=60) == 0
    assert not process.socket.exists() and segment.name_in_use(process.socket) is None


def test_sigterm_lets_a_stream_finish(start: Start) -> None:
    process = start("--model", "sim:dense,step_us=2000")
    connection, response = stream(process, chat(max_tokens=200, session_id="a"))
    process.popen.send_signal(signal.SIGTERM)
    process.wait_for("stopping")
    assert process.ask("POST", "/v1/chat/completions", chat())[0] == 503
    assert process.ask("GET", "/ready")[0] == 503
    assert response.read().endswith(b"data: [DONE]\n\n")
    connection.close()
    process.wait_for("stopped")
    assert process.popen.wait(timeout=60) == 0


def test_sigterm_cancels_after_its_patience(start: Start) -> None:
    process = start("--model", ENDLESS, "--ctx-size", "200000", "--shutdown-timeout", "0.05")
    connection, response = stream(process, chat(max_tokens=100_000))
    process.popen.send_signal(signal.SIGINT)
    tail = response.read()
    connection.close()
    assert b'"code":"shutting_down"' in tail and tail.endswith(b"data: [DONE]\n\n")
    assert process.popen.wait(timeout=60) == 0


def test_a_second_signal_exits_at_once(start: Start) -> None:
    process = start("--model", ENDLESS, "--ctx-size", "200000", "--shutdown-timeout", "3600")
    connection, _ = stream(process, chat(max_tokens=100_000))
    process.popen.send_signal(signal.SIGTERM)
    process.wait_for("stopping")
    process.popen.send_signal(signal.SIGTERM)
    assert process.popen.wait(timeout=60) == 128 + signal.SIGTERM
    connection.close()
    assert not process.socket.exists()


def test_a_daemon_that_was_killed_leaves_nothing_in_the_way(start: Start) -> None:
    process = start()
    process.popen.kill()
    process.popen.wait()
    assert process.socket.exists()
    again = start()
    assert again.ask("GET", "/ready")[0] == 200


def test_addresses_in_use(start: Start) -> None:
    process = start()
    status, errors = start.fails("--socket", f"{process.socket}.other", "--port", str(process.port))
    assert status == 1 and "--port" in errors and str(process.port) in errors
    status, errors = start.fails()
    assert status == 1 and "another llmd uses the socket" in errors and "--socket" in errors
    assert process.ask("GET", "/ready")[0] == 200


@pytest.mark.parametrize(
    ("arguments", "status", "part"),
    [
        (["--port", "x"], 2, "--port: 'x'"),
        (["--model", "sim:nonsense"], 1, "--model: sim:nonsense: unknown"),
        (["--model", "sim:dense,x=1"], 1, "--model sim:dense,x=1: "),
        (["--model", "/no/such/model.gguf"], 1, "--model: cannot open the model /no/such/model.gguf: "),
        (["--api-key-file", "/no/such/file"], 2, "--api-key-file"),
        (["--chat-template-file", "/no/such/file"], 2, "--chat-template-file"),
        (["--host", "256.0.0.1"], 1, "256.0.0.1"),
        (["--state-dir", "/proc/nothing"], 1, "--state-dir"),
    ],
)
def test_a_bad_start_is_a_sentence(start: Start, arguments: list[str], status: int, part: str) -> None:
    found, errors = start.fails(*arguments)
    assert found == status
    last = errors.strip().splitlines()[-1]
    assert last.startswith("llmd: ") and part in last and "Traceback" not in errors


def test_without_the_native_library(start: Start) -> None:
    status, errors = start.fails(LLMD_LIBLLM_VARIANT="nonsense")
    assert status == 1 and "./build.sh setup" in errors and "Traceback" not in errors


def test_help_and_version_need_no_library() -> None:
    environment = {**os.environ, "LLMD_LIBLLM_VARIANT": "nonsense"}
    for flag in ("--help", "--version"):
        shown = subprocess.run([sys.executable, "-m", "llmd", flag], capture_output=True, text=True, env=environment)
        assert shown.returncode == 0 and "llmd" in shown.stdout


def test_ready_and_watchdog_reach_systemd(start: Start, tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.settimeout(60)
        manager.bind(str(tmp_path / "notify"))
        process = start(NOTIFY_SOCKET=str(tmp_path / "notify"), WATCHDOG_USEC="50000")
        said: list[str] = []
        while "READY=1" not in said or said.count("WATCHDOG=1") < 3:
            said += manager.recv(4096).decode().splitlines()
        assert any(line.startswith("STATUS=Serving") for line in said)
        process.popen.send_signal(signal.SIGTERM)
        while "STOPPING=1" not in said:
            said += manager.recv(4096).decode().splitlines()
    assert process.popen.wait(timeout=60) == 0


def test_sockets_from_systemd(start: Start, tmp_path: Path) -> None:
    """Passes sockets as systemd does: as descriptors from 3 on, with the pid, which only the child knows."""
    listener = socket.create_server(("127.0.0.1", 0))
    port = listener.getsockname()[1]
    script = (
        "import os, sys; os.dup2(int(sys.argv[1]), 3); os.environ['LISTEN_PID'] = str(os.getpid()); "
        "os.execv(sys.argv[2], sys.argv[2:])"
    )
    with listener:
        popen = subprocess.Popen(
            [sys.executable, "-c", script, str(listener.fileno()), *start.arguments()],
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "LISTEN_FDS": "1"},
            pass_fds=[listener.fileno(), 3] if listener.fileno() != 3 else [3],
        )
        start._started.append(popen)
    process = Process(popen, [], port, tmp_path / "none")
    assert process.wait_for("serving")["addresses"] == f"http://127.0.0.1:{port}"
    assert process.ask("GET", "/ready")[0] == 200
    popen.send_signal(signal.SIGTERM)
    process.wait_for("stopped")
    assert popen.wait(timeout=60) == 0


def test_no_debugger_is_started_and_no_other_threads(start: Start) -> None:
    """OpenMP would keep a team of threads for each thread that ever computed, and their waiting cannot consider other
    processes.
    """
    process = start()
    program = "import os, llmd.engine.native; print(os.environ['GGML_NO_BACKTRACE'])"
    shown = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert shown.stdout.strip() == "1"
    assert "libgomp" not in Path(f"/proc/{process.popen.pid}/maps").read_text()


def test_text_log(start: Start) -> None:
    popen = start.popen("--log-format", "text")
    assert popen.stderr is not None
    lines = []
    for line in popen.stderr:
        lines.append(line)
        if "serving" in line:
            break
    assert re.match(
        r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z info    starting version=\S+ pid=\d+ model=sim:dense$", lines[0]
    )
