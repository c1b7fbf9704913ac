"""SIGHUP, which has two meanings, and SIGQUIT. SIGTERM and SIGINT are tested in test_process.py and test_loading.py."""

from __future__ import annotations

import fcntl
import http.client
import os
import signal
import socket
import termios
from collections.abc import Iterator
from pathlib import Path

import pytest

from llmd.__main__ import main
from llmd.app import create_app, reload_keys
from llmd.http.access import KeyRing, read_keys
from llmd.http.context import STATE
from tests.conftest import Serve
from tests.serving import config_of
from tests.test_access import ANN, BOB, ROOT, bearer, key_file
from tests.test_process import Process, Start


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    starter = Start(tmp_path)
    yield starter
    starter.close()


def status_with(process: Process, key: str) -> int:
    connection = http.client.HTTPConnection("127.0.0.1", process.port, timeout=60)
    try:
        connection.request("GET", "/v1/models", headers=bearer(key))
        return connection.getresponse().status
    finally:
        connection.close()


def test_sighup_reads_the_keys_again(start: Start, tmp_path: Path) -> None:
    keys = key_file(tmp_path, f"{ANN} ann\n")
    process = start("--api-key-file", str(keys))
    assert (status_with(process, ANN), status_with(process, BOB)) == (200, 401)
    keys.write_text(f"{BOB} bob\n{ROOT} bob\n")
    process.popen.send_signal(signal.SIGHUP)
    line = process.wait_for("API keys reloaded")
    assert (line["keys"], line["owners"]) == (2, 1)
    assert (status_with(process, ANN), status_with(process, BOB)) == (401, 200)
    keys.write_text("a b c\n")
    process.popen.send_signal(signal.SIGHUP)
    complaint = process.wait_for("the API keys were not reloaded")
    assert complaint["level"] == "error" and "line 1: expected KEY" in complaint["message"]
    assert (status_with(process, ANN), status_with(process, BOB)) == (401, 200)


def test_systemd_hears_of_a_reload(start: Start, tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.settimeout(60)
        manager.bind(str(tmp_path / "notify"))
        process = start(NOTIFY_SOCKET=str(tmp_path / "notify"))
        while not manager.recv(4096).startswith(b"READY=1"):
            pass
        process.popen.send_signal(signal.SIGHUP)
        process.wait_for("SIGHUP has no effect: --api-key-file is not set, so llmd has no API keys to reload")
        reloading, stamp = manager.recv(4096).decode().splitlines()
        assert reloading == "RELOADING=1" and int(stamp.removeprefix("MONOTONIC_USEC=")) > 0
        assert manager.recv(4096) == b"READY=1"


def test_the_end_of_its_terminal_stops_it_in_order(start: Start) -> None:
    master, slave = os.openpty()

    def take_terminal() -> None:
        fcntl.ioctl(slave, termios.TIOCSCTTY, 0)

    start.prepare = take_terminal
    process = start()
    os.close(slave)
    os.close(master)  # closes the terminal: the kernel sends SIGHUP
    process.wait_for("stopped")
    assert process.popen.wait(timeout=60) == 0
    assert not process.socket.exists()


def test_a_shell_may_say_it_twice(start: Start) -> None:
    master, slave = os.openpty()
    start.prepare = lambda: fcntl.ioctl(slave, termios.TIOCSCTTY, 0)
    process = start("--model", "sim:dense,step_us=1000", "--shutdown-timeout", "60")
    for _ in range(2):
        process.popen.send_signal(signal.SIGHUP)
    process.wait_for("stopped")
    assert process.popen.wait(timeout=60) == 0
    os.close(slave)
    os.close(master)


def test_nohup_is_respected(start: Start) -> None:
    start.prepare = lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN)
    process = start()
    process.popen.send_signal(signal.SIGHUP)
    assert process.ask("GET", "/ready")[0] == 200
    process.popen.send_signal(signal.SIGTERM)
    process.wait_for("stopped")
    assert not any("reload" in line["message"] for line in process.log)


def test_signals_ignored_around_the_tests_reach_a_process(start: Start) -> None:
    """Signals are ignored under nohup, or if a shell without job control runs the tests in the background."""
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        process = start()
    finally:
        signal.signal(signal.SIGINT, before)
    process.popen.send_signal(signal.SIGINT)
    process.wait_for("stopped")
    assert process.popen.wait(timeout=60) == 0


def test_sigquit_says_what_the_threads_were_doing(start: Start) -> None:
    process = start()
    process.popen.send_signal(signal.SIGQUIT)
    _, said = process.popen.communicate(timeout=60)
    assert process.popen.returncode == -signal.SIGQUIT and "most recent call first" in said
    assert start().ask("GET", "/ready")[0] == 200


def test_ctrl_c_before_there_is_anything_to_stop(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(_: object) -> bool:
        raise KeyboardInterrupt

    monkeypatch.setattr("llmd.__main__._run", interrupted)
    monkeypatch.setattr("llmd.process.logs.configure", lambda *_: None)
    monkeypatch.setattr("sys.argv", ["llmd"])
    with pytest.raises(SystemExit) as caught:
        main()
    assert caught.value.code == 128 + signal.SIGINT


async def test_owners_are_told_to_the_engine(serve: Serve, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[int] = []
    monkeypatch.setattr("llmd.engine.engine.Engine.set_owners", lambda _, n: told.append(n), raising=False)
    keys = key_file(tmp_path)
    daemon = await serve(api_key_file=keys)
    keys.write_text(f"{ANN} ann\n")
    reload_keys(daemon.state)
    keys.write_text("")
    reload_keys(daemon.state)
    assert told == [3, 1] and daemon.state.keys.owner_by_name("ann") is not None


async def test_keys_are_reloaded_while_the_model_loads(tmp_path: Path) -> None:
    keys = key_file(tmp_path)
    (tmp_path / "state").mkdir()
    state = create_app(config_of(tmp_path, api_key_file=keys), read_keys(keys))[STATE]
    keys.write_text(f"{ANN} ann\n")
    reload_keys(state)
    assert len(state.keys) == 1 and len(KeyRing()) == 0
