"""The daemon's process if its environment fails: standard streams that are closed, full or not read, and file
descriptors that are used up.
"""

from __future__ import annotations

import contextlib
import fcntl
import http.client
import os
import resource
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO

import pytest

from tests.serving import SETTLE_S, chat
from tests.test_process import Process, Start


class Silent:
    """A daemon whose standard error the test does not read. The test learns from systemd's notification that the daemon
    is ready.
    """

    def __init__(self, directory: Path) -> None:
        self._start = Start(directory)
        self._manager = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._manager.settimeout(60)
        self._manager.bind(str(directory / "notify"))
        self._environment = {**os.environ, "NOTIFY_SOCKET": str(directory / "notify")}
        self._directory = directory

    def begin(
        self, stderr: int | IO[str] | None, *arguments: str, closed: tuple[int, ...] = (), **environment: str
    ) -> Process:
        def close() -> None:
            for descriptor in closed:
                os.close(descriptor)

        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        popen = subprocess.Popen(
            self._start.arguments("--port", str(port), "--log-level", "debug", *arguments),
            stderr=stderr,
            env={**self._environment, **environment},
            text=True,
            preexec_fn=close,
        )
        self._start._started.append(popen)
        while not self._manager.recv(4096).startswith(b"READY=1"):
            pass
        return Process(popen, [], port, self._directory / "run" / "llmd.sock")

    def close(self) -> None:
        self._start.close()
        self._manager.close()


@pytest.fixture
def silent(tmp_path: Path) -> Iterator[Silent]:
    made = Silent(tmp_path)
    yield made
    made.close()


def works_and_stops(process: Process, n_requests: int = 3) -> None:
    for _ in range(n_requests):
        assert process.ask("POST", "/v1/chat/completions", chat(session_id="a"))[0] == 200
    process.popen.send_signal(signal.SIGTERM)
    assert process.popen.wait(timeout=60) == 0
    assert not process.socket.exists()


@pytest.mark.parametrize("closed", [(2,), (0, 1, 2), (0,)])
def test_streams_that_the_caller_closed(silent: Silent, closed: tuple[int, ...]) -> None:
    """No file or socket may get the descriptor of a closed standard stream, because log lines would be written to
    it.
    """
    process = silent.begin(subprocess.DEVNULL, closed=closed)
    for descriptor in closed:
        assert os.readlink(f"/proc/{process.popen.pid}/fd/{descriptor}") == os.devnull
    works_and_stops(process)


def test_a_full_disk_under_the_log(silent: Silent) -> None:
    with open("/dev/full", "w", encoding="utf-8") as full:
        works_and_stops(silent.begin(full))


def test_nobody_reads_the_log_any_more(silent: Silent) -> None:
    process = silent.begin(subprocess.PIPE)
    process.stderr.close()
    works_and_stops(process)


def test_a_reader_of_the_log_that_has_stopped_holds_up_nobody(silent: Silent) -> None:
    process = silent.begin(subprocess.PIPE)
    fcntl.fcntl(process.stderr, fcntl.F_SETPIPE_SZ, 8192)
    works_and_stops(process, 60)  # a few hundred bytes of log each
    said = process.stderr.read()
    assert said.count("\n") < 60, "the pipe was not full"


def test_the_journal_gets_priorities_and_no_second_time(silent: Silent) -> None:
    reading, writing = os.pipe()
    found = os.fstat(writing)
    with open(reading, encoding="utf-8") as journal:
        with open(writing, "w", encoding="utf-8") as stderr:
            stream = f"{found.st_dev}:{found.st_ino}"
            process = silent.begin(stderr, "--log-format", "text", JOURNAL_STREAM=stream)
        works_and_stops(process)
        lines = journal.read().splitlines()
    assert all(line[0] == "<" and line[1] in "34567" and line[2] == ">" for line in lines), lines
    assert lines[0].startswith("<6>info    starting ") and not any("T0" in line.split(" ")[0] for line in lines)


def test_connections_beyond_the_descriptors_are_refused_and_the_loop_goes_on(start: Start) -> None:
    start.prepare = lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
    process = start()
    with contextlib.ExitStack() as stack:
        for _ in range(150):
            stack.enter_context(socket.create_connection(("127.0.0.1", process.port), timeout=60))
        assert status(process) != 200
        before = n_waits(process)
        wait_until(lambda: status(process) != 200 and n_waits(process) >= before + 20)
    wait_until(lambda: status(process) == 200)
    process.popen.send_signal(signal.SIGTERM)
    assert process.popen.wait(timeout=60) == 0


def status(process: Process) -> int | None:
    """Returns the status of an answer, or None if the connection was closed without an answer."""
    try:
        return process.ask("GET", "/ready")[0]
    except (ConnectionError, http.client.HTTPException):
        return None


def n_waits(process: Process) -> int:
    """Returns how often the event loop has waited for an event. A loop that spins never waits, however slow the machine
    is.
    """
    pid = process.popen.pid
    fields = Path(f"/proc/{pid}/task/{pid}/status").read_text(encoding="utf-8")
    return int(fields.partition("\nvoluntary_ctxt_switches:")[2].split(maxsplit=1)[0])


def wait_until(is_so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + SETTLE_S
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.05)


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    starter = Start(tmp_path)
    yield starter
    starter.close()
