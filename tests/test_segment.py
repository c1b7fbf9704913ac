"""The name of the shared memory: no other user can create it first, and llmctl and the next daemon find it."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from llmd.engine import segment
from llmd.engine.native import SegmentError, SessionTable
from tests.serving import chat
from tests.test_process import Start


@pytest.fixture
def socket(tmp_path: Path) -> Path:
    return tmp_path / "llmd.sock"


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    starter = Start(tmp_path)
    yield starter
    starter.close()


def test_names_are_drawn(socket: Path) -> None:
    drawn = {segment.new_name(socket) for _ in range(100)}
    assert len(drawn) == 100
    assert len({name[:22] for name in drawn}) == 1 and all(len(name) == 39 for name in drawn)


def test_what_is_written_is_read(socket: Path) -> None:
    first, second = segment.new_name(socket), segment.new_name(socket)
    assert segment.names(socket) == []
    segment.write(socket, first, second)
    assert segment.names(socket) == [first, second]
    segment.write(socket, second)
    assert segment.names(socket) == [second] and segment.name_in_use(socket) is None


@pytest.mark.parametrize("line", ["/etc/passwd", "/llmd-../../etc/passwd", "", "x" * 5000, "/llmd-0123"])
def test_what_is_no_name_is_none(socket: Path, line: str) -> None:
    Path(f"{socket}.lock").write_text(f"{line}\n")
    assert segment.names(socket) == []


def test_files_of_others_are_not_believed(socket: Path) -> None:
    lock, name = Path(f"{socket}.lock"), segment.new_name(socket)
    segment.write(socket, name)
    lock.chmod(0o666)
    assert segment.names(socket) == []
    lock.unlink()
    lock.symlink_to(socket.parent / "elsewhere")
    assert segment.names(socket) == []
    with pytest.raises(OSError, match="symbolic"):
        segment.write(socket, name)
    if os.geteuid() == 0:
        lock.unlink()
        segment.write(socket, name)
        socket.touch()
        os.chown(lock, 1, 1)
        assert segment.names(socket) == []
        os.chown(socket, 1, 1)
        assert segment.names(socket) == [name]


def test_a_segment_that_others_could_have_made_is_not_read(socket: Path) -> None:
    name = segment.new_name(socket)
    path = Path("/dev/shm") / name[1:]
    path.write_bytes(bytes(4096))
    try:
        path.chmod(0o644)
        with pytest.raises(SegmentError, match="operating system"):
            SessionTable.open(name)
    finally:
        path.unlink()


def test_a_squatter_neither_stops_the_daemon_nor_is_believed(start: Start) -> None:
    """Another user has created shared memory of the name in the lock file, which everybody can read."""
    first = start("--model", "sim:hybrid")
    assert first.ask("POST", "/v1/chat/completions", chat(session_id="desk"))[0] == 200
    [name] = segment.names(first.socket)
    first.popen.send_signal(signal.SIGKILL)
    first.popen.wait()
    path = Path("/dev/shm") / name[1:]
    path.chmod(0o666)
    second = start("--model", "sim:hybrid")
    assert second.ask("GET", "/v1/sessions")[1]["data"] == []
    assert path.exists() and segment.names(second.socket) != [name]
    path.unlink()


def test_what_was_taken_over_is_removed(start: Start) -> None:
    first = start("--model", "sim:hybrid")
    assert first.ask("POST", "/v1/chat/completions", chat(session_id="desk"))[0] == 200
    [name] = segment.names(first.socket)
    first.popen.send_signal(signal.SIGKILL)
    first.popen.wait()
    assert segment.name_in_use(first.socket) == name
    second = start("--model", "sim:hybrid")
    assert [one["id"] for one in second.ask("GET", "/v1/sessions")[1]["data"]] == ["desk"]
    assert not segment.exists(name)
    [new] = segment.names(second.socket)
    assert new != name and segment.exists(new)
