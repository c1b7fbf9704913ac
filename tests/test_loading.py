"""While the model loads: who is answered, what systemd hears, and how a signal ends it."""

from __future__ import annotations

import asyncio
import signal
import socket
import sys
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from llmd.app import OPENING
from llmd.ctl import __main__ as ctl
from llmd.ctl.context import EXIT_ABSENT
from llmd.engine.opening import EngineOptions, open_engine
from llmd.http.endpoints.wire.health import Readiness
from llmd.process.loading import Loading
from tests.serving import SETTLE_S, Daemon, config_of, serving
from tests.test_access import ANN, bearer, key_file
from tests.test_process import Process, Start

# As `python -m llmd`, but the model is not there before the file named first is.
SLOW = """
import pathlib, sys, time
from llmd import __main__
from llmd.engine import engine
gate, real = pathlib.Path(sys.argv.pop(1)), engine.open_engine
def open_engine(options):
    while not gate.exists():
        time.sleep(0.01)
    return real(options)
engine.open_engine = open_engine
__main__.main()
"""


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    """The model is there when this is set."""
    event = threading.Event()

    def open_later(options: EngineOptions) -> Any:
        event.wait()
        return open_engine(options)

    monkeypatch.setattr("llmd.engine.engine.open_engine", open_later)
    yield event
    event.set()


@asynccontextmanager
async def loading(directory: Path, gate: threading.Event, **options: Any) -> AsyncIterator[Daemon]:
    async with serving(config_of(directory, **options), is_loaded=False) as daemon:
        try:
            yield daemon
        finally:
            gate.set()
            async with asyncio.timeout(SETTLE_S):
                await daemon.app[OPENING]


async def test_probes_are_answered(tmp_path: Path, gate: threading.Event) -> None:
    async with loading(tmp_path, gate, model_id="mine") as daemon:
        daemon.state.loading = Loading(lambda: 430, iter([0.0, 12.0]).__next__)
        assert (await daemon.ask("GET", "/health")).json["status"] == "ok"
        assert (await daemon.ask("GET", "/openapi.json")).status == 200
        answer = await daemon.ask("GET", "/ready", local=True)
        assert (answer.status, answer.headers["Retry-After"]) == (503, "1")
        assert answer.json == {
            "status": "loading",
            "model": "mine",
            "requests": 0,
            "seconds_without_progress": 0.0,
            "loaded_per_mille": 430,
            "seconds_loading": 12.0,
        }
    assert Readiness("ready", "m", 0, 0.0).loaded_per_mille == 1000


async def test_everything_else_is_told_to_come_back(tmp_path: Path, gate: threading.Event) -> None:
    """Before its body is read."""
    async with loading(tmp_path, gate, body_limit=1024) as daemon:
        for method, path, body in (
            ("POST", "/v1/chat/completions", b"{" * 100_000),
            ("GET", "/v1/sessions", None),
            ("GET", "/metrics", None),
            ("DELETE", "/v1/sessions/a", None),
        ):
            for local in (True, False):
                answer = await daemon.ask(method, path, body, local=local)
                assert (answer.status, answer.error["code"]) == (503, "model_loading")
                assert answer.headers["Retry-After"] == "1" and "/ready" in answer.error["message"]
        assert (await daemon.ask("GET", "/v1/nothing")).status == 404
        assert (await daemon.ask("GET", "/v1/models", headers={"Host": "evil.example"})).status == 403
    assert daemon.state.metrics.streams_open == 0


@pytest.mark.parametrize(
    ("per_mille", "seconds", "after"), [(0, 50.0, 1), (500, 6.5, 7), (999, 60.0, 1), (1000, 60.0, 1), (1, 60.0, 30)]
)
async def test_how_long_to_wait_is_foretold(
    tmp_path: Path, gate: threading.Event, per_mille: int, seconds: float, after: int
) -> None:
    async with loading(tmp_path, gate) as daemon:
        daemon.state.loading = Loading(lambda: per_mille, iter([0.0, seconds]).__next__)
        assert (await daemon.ask("GET", "/v1/models")).headers["Retry-After"] == str(after)


async def test_then_it_serves(tmp_path: Path, gate: threading.Event) -> None:
    async with loading(tmp_path, gate) as daemon:
        gate.set()
        async with asyncio.timeout(SETTLE_S):
            await daemon.app[OPENING]
        await daemon.chat()
        ready = (await daemon.ask("GET", "/ready")).json
        assert (ready["status"], ready["loaded_per_mille"], ready["seconds_loading"]) == ("ready", 1000, None)


async def test_keys_count_from_the_beginning(tmp_path: Path, gate: threading.Event) -> None:
    async with loading(tmp_path, gate, api_key_file=key_file(tmp_path)) as daemon:
        assert (await daemon.ask("GET", "/v1/models")).status == 401
        assert (await daemon.ask("GET", "/v1/models", headers=bearer(ANN))).error["code"] == "model_loading"


async def test_llmctl_says_so(tmp_path: Path, gate: threading.Event, capsys: pytest.CaptureFixture[str]) -> None:
    async with loading(tmp_path, gate) as daemon:
        for verb in (["status"], ["models"], ["sessions", "list"]):
            arguments = ["--socket", str(daemon.config.socket), *verb]
            assert await asyncio.to_thread(ctl.main, arguments) == EXIT_ABSENT
            assert "it still loads its model" in capsys.readouterr().err


# --- the process -----------------------------------------------------------------------------------------------------


@pytest.fixture
def slow(tmp_path: Path) -> Iterator[Callable[..., Process]]:
    """A daemon whose model is not there before tmp_path/gate is; it listens already."""
    start = Start(tmp_path)
    start.program = [sys.executable, "-c", SLOW, str(tmp_path / "gate")]

    def begin(**environment: str) -> Process:
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        popen = start.popen("--port", str(port), **environment)
        process = Process(popen, [], port, tmp_path / "run" / "llmd.sock")
        process.wait_for("listening")
        return process

    yield begin
    (tmp_path / "gate").touch()
    start.close()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_the_loading_in_order(slow: Callable[..., Process], number: signal.Signals) -> None:
    process = slow()
    assert process.ask("GET", "/ready")[1]["status"] == "loading"
    assert process.socket.exists()
    process.popen.send_signal(number)
    process.wait_for("stopped")
    assert process.popen.wait(timeout=60) == 0
    assert not process.socket.exists()


def test_systemd_hears_how_far_it_is(slow: Callable[..., Process], tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.settimeout(60)
        manager.bind(str(tmp_path / "notify"))
        process = slow(NOTIFY_SOCKET=str(tmp_path / "notify"), WATCHDOG_USEC="50000")
        assert manager.recv(4096) == b"STATUS=Loading sim:dense: 0 %\nEXTEND_TIMEOUT_USEC=120000000"
        (tmp_path / "gate").touch()
        process.wait_for("serving")
        said = manager.recv(4096).decode()
        while not said.startswith("READY=1"):
            assert "WATCHDOG" not in said
            said = manager.recv(4096).decode()


def test_a_model_that_fails_to_load_takes_the_sockets_with_it(start: Start, tmp_path: Path) -> None:
    status, _ = start.fails("--model", "/no/such/model.gguf")
    assert status == 1 and not (tmp_path / "run" / "llmd.sock").exists()


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    starter = Start(tmp_path)
    yield starter
    starter.close()
