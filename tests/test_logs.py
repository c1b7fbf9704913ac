"""Log lines, and the environment that systemd sets."""

from __future__ import annotations

import fcntl
import json
import logging
import os
import socket
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from llmd.process import logs, systemd


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


@pytest.mark.parametrize("end", ["\x85", "\u2028", "\u2029", "\x9b31m", "\x7f", "\u202e"])
def test_a_client_neither_ends_a_line_nor_paints_one(end: str) -> None:
    made = record("request", path=f"/a{end}<3>forged")
    line = logs.TextFormatter(has_stamp=False).format(made)
    assert line.isprintable() and json.loads(line.partition("path=")[2]) == f"/a{end}<3>forged"
    for formatter in (logs.TextFormatter(), logs.JsonFormatter()):
        assert logs.JournalFormatter(formatter).format(made).count("<6>") == 1


def test_letters_of_all_languages_stay_as_they_are() -> None:
    assert logs.TextFormatter(has_stamp=False).format(record("x", path="/ä 字")).endswith('path="/ä 字"')


# --- the sink --------------------------------------------------------------------------------------------------------


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    """Returns a pipe of two pages. A page with any data counts as full."""
    reading, writing = os.pipe()
    fcntl.fcntl(writing, fcntl.F_SETPIPE_SZ, 8192)
    yield reading, writing
    os.close(reading)
    os.close(writing)


def sink(descriptor: int) -> logs.Sink:
    made = logs.Sink(descriptor)
    made.setFormatter(logging.Formatter("%(message)s"))
    return made


def test_lines_that_nobody_reads_are_counted(pipe: tuple[int, int]) -> None:
    reading, writing = pipe
    handler = sink(writing)
    handler.setFormatter(logs.TextFormatter(has_stamp=False))
    for n in range(5):
        handler.emit(record("x" * 3000, n=n))
    assert os.read(reading, 10_000).count(b"\n") == 2
    handler.emit(record("again"))
    assert os.read(reading, 10_000) == b"warning log lines were lost lines=3\ninfo    again\n"


def test_a_long_line_is_written_in_pieces_and_a_torn_one_ends(pipe: tuple[int, int]) -> None:
    reading, writing = pipe
    handler = sink(writing)
    handler.emit(record("y" * 10_000))
    assert os.read(reading, 10_000) == b"y" * 8192
    handler.emit(record("z"))
    lines = os.read(reading, 10_000).decode().splitlines()
    assert (lines[0], len(lines), lines[-1]) == ("", 3, "z")


def test_a_sink_that_fails_fails_alone() -> None:
    reading, writing = os.pipe()
    handler = sink(writing)
    os.close(reading)
    handler.emit(record("nobody reads"))
    os.close(writing)
    handler.emit(record("not even a descriptor"))
    with open("/dev/full", "wb") as full:
        sink(full.fileno()).emit(record("no room"))


def test_what_cannot_be_encoded_or_formatted_is_still_a_line(pipe: tuple[int, int]) -> None:
    reading, writing = pipe
    handler = sink(writing)
    handler.emit(record("half \ud800"))
    handler.emit(logging.LogRecord("llmd", logging.INFO, "", 1, "%d", ("x",), None))
    said = os.read(reading, 10_000).decode().splitlines()
    assert said[0] == "half \\ud800" and said[1].startswith("a log line could not be formatted: '%d'")


# --- the journal -----------------------------------------------------------------------------------------------------


def test_the_journal_is_known_by_its_descriptor(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with open(tmp_path / "stream", "wb") as stream:
        monkeypatch.setattr(logs, "STDERR", stream.fileno())
        found = os.fstat(stream.fileno())
        assert logs.writes_to_journal({"JOURNAL_STREAM": f"{found.st_dev}:{found.st_ino}"})
        assert not logs.writes_to_journal({"JOURNAL_STREAM": f"{found.st_dev}:{found.st_ino + 1}"})
        assert not logs.writes_to_journal({})


@pytest.mark.parametrize(("level", "priority"), [(10, 7), (20, 6), (30, 4), (40, 3), (50, 2), (25, 6)])
def test_each_line_has_its_priority(level: int, priority: int) -> None:
    made = logging.LogRecord("llmd", level, __file__, 1, "one", (), None)
    try:
        raise ValueError("two")
    except ValueError:
        made.exc_info = sys.exc_info()
    lines = logs.JournalFormatter(logs.TextFormatter(has_stamp=False)).format(made).splitlines()
    assert len(lines) > 3 and all(line.startswith(f"<{priority}>") for line in lines)


def test_last_words(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    logs.print_fatal("llmd: no")
    monkeypatch.setattr(logs, "writes_to_journal", lambda: True)
    logs.print_fatal("llmd: no")
    assert capsys.readouterr().err == "llmd: no\n<3>llmd: no\n"


# --- systemd ---------------------------------------------------------------------------------------------------------


def test_more_time_and_reloading() -> None:
    assert systemd.more_time(1.5) == ("EXTEND_TIMEOUT_USEC=1500000",)
    assert systemd.more_time(1.5, False) == ()
    assert systemd.reloading().startswith("RELOADING=1\nMONOTONIC_USEC=")


def test_notify(tmp_path: Path) -> None:
    assert systemd.notify("READY=1", environment={}) is False
    assert systemd.notify("READY=1", environment={"NOTIFY_SOCKET": str(tmp_path / "none")}) is False
    for address in (str(tmp_path / "notify"), f"@llmd-test-{os.getpid()}"):
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
            manager.bind(address.replace("@", "\0"))
            assert systemd.notify("READY=1", "STATUS=x", environment={"NOTIFY_SOCKET": address})
            assert manager.recv(100) == b"READY=1\nSTATUS=x"


def test_a_manager_that_does_not_listen_holds_up_nobody(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(tmp_path / "notify"))
        environment = {"NOTIFY_SOCKET": str(tmp_path / "notify")}
        assert any(not systemd.notify("x" * 1000, environment=environment) for _ in range(10_000))


def test_watchdog_interval() -> None:
    assert systemd.watchdog_interval_s({}) is None
    assert systemd.watchdog_interval_s({"WATCHDOG_USEC": "60000000"}) == 30
    assert systemd.watchdog_interval_s({"WATCHDOG_USEC": "60000000", "WATCHDOG_PID": "1"}) is None
    assert systemd.watchdog_interval_s({"WATCHDOG_USEC": "x"}) is None


def test_sockets_for_somebody_else() -> None:
    environment = {"LISTEN_FDS": "1", "LISTEN_PID": "1", "LISTEN_FDNAMES": "x"}
    assert systemd.listen_sockets(environment) == [] and environment == {}
