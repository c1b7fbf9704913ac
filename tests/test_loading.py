# ruff: noqa: ASYNC110 - conditions here have no event of their own
"""The daemon while the model loads: which requests are answered, what systemd is told, and how a signal stops the
daemon.
"""

from __future__ import annotations

import argparse
import asyncio
import io
import json
import signal
import socket
import sys
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from itertools import chain, repeat
from pathlib import Path
from typing import Any

import pytest
from aiohttp import ClientSession, UnixConnector, web

from llmd import __version__
from llmd.app import create_app, runner_of
from llmd.core import limits
from llmd.ctl import __main__ as ctl
from llmd.ctl.context import EXIT_ABSENT, EXIT_OK
from llmd.engine.opening import EngineError, EngineOptions, open_engine
from llmd.http import connections
from llmd.http.access import keys_of
from llmd.http.context import OPENING, STATE
from llmd.http.endpoints.health_wire import Readiness
from llmd.http.receive import BODIES
from llmd.process.progress import Loading
from tests.serving import SETTLE_S, Daemon, Json, chat, config_of, parse_events, serving
from tests.test_access import ANN, bearer, key_file
from tests.test_process import Process, Start

# Does the same as `python -m llmd`, but loads the model only when the file of the first argument exists.
SLOW = """
import pathlib, sys, time
from llmd import __main__
from llmd.engine import loader
gate, real = pathlib.Path(sys.argv.pop(1)), loader.open_engine
def open_engine(options):
    while not gate.exists():
        time.sleep(0.01)
    return real(options)
loader.open_engine = open_engine
__main__.main()
"""

# As `python -m llmd`, but the model never is there; importing the module named second does what is named first,
# while the model loads.
ENDING = """
import signal, sys, threading
from llmd import __main__
from llmd.engine import loader
action, module = sys.argv.pop(1), sys.argv.pop(1)
is_loading = threading.Event()
def open_engine(options):
    is_loading.set()
    threading.Event().wait()
loader.open_engine = open_engine
class Gate:
    def find_spec(self, name, path, target=None):
        if name == module:
            is_loading.wait()
            exec(action)
sys.meta_path.insert(0, Gate())
__main__.main()
"""

# Does the same as `python -m llmd`, but with a library that has other commands.
DIFFERING = """
import os
from llmd import __main__
from llmd.engine import loader
loader.differences = lambda: ["Save.label: only the daemon or only libllm knows it"]
loader.open_engine = lambda options: os._exit(9)
__main__.main()
"""


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    """The model is loaded when this event is set."""
    event = threading.Event()

    def open_later(options: EngineOptions) -> Any:
        event.wait()
        return open_engine(options)

    monkeypatch.setattr("llmd.engine.loader.open_engine", open_later)
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
        daemon.state.loading = Loading(lambda: 430, chain([0.0], repeat(12.0)).__next__)
        assert (await daemon.ask("GET", "/live")).json["status"] == "ok"
        for path in ("/health", "/v1/health"):
            health = await daemon.ask("GET", path)
            assert (health.status, health.headers["Retry-After"]) == (503, "16")
            assert health.json == {"error": {"code": 503, "message": "Loading model", "type": "unavailable_error"}}
        assert (await daemon.ask("GET", "/openapi.json")).status == 200
        answer = await daemon.ask("GET", "/ready", local=True)
        assert (answer.status, answer.headers["Retry-After"]) == (503, "16")  # 570 / 430 * 12
        assert answer.json == {
            "status": "loading",
            "model": "mine",
            "requests": 0,
            "seconds_without_progress": 0.0,
            "loaded_per_mille": 430,
            "seconds_loading": 12.0,
            "download": None,
        }
    assert Readiness("ready", "m", 0, 0.0).loaded_per_mille == 1000


async def test_everything_else_is_told_to_come_back(tmp_path: Path, gate: threading.Event) -> None:
    """The request is refused before its body is received."""
    async with loading(tmp_path, gate, body_limit=1024, load_wait=0.0) as daemon:
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
        daemon.state.loading = Loading(lambda: per_mille, chain([0.0], repeat(seconds)).__next__)
        for path in ("/v1/models", "/ready"):
            assert (await daemon.ask("GET", path)).headers["Retry-After"] == str(after)


@pytest.mark.parametrize(
    ("method", "path"), [("GET", "/v1/models"), ("GET", "/api/tags"), ("POST", "/v1/sessions/a/pin"), ("GET", "/slots")]
)
async def test_only_requests_of_the_model_wait(tmp_path: Path, gate: threading.Event, method: str, path: str) -> None:
    async with loading(tmp_path, gate) as daemon:
        assert (await daemon.ask(method, path)).code == "model_loading"


# --- requests that wait ----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Waiting:
    path: str
    body: Json
    progress: bytes
    """The bytes that the stream begins with while the model loads."""
    last: bytes
    """The beginning of the last frame of the complete stream."""
    mistake: Json
    """A member with a value outside its range."""
    error: bytes
    """What follows in the stream of a request with the mistake."""


_MESSAGE: list[Json] = [{"role": "user", "content": "hello"}]
_COMMENT = b": Loading the model: 43 %\n: keep-alive\n\n"
STREAMS = {
    "chat": Waiting("/v1/chat/completions", chat(stream=True), _COMMENT, b"data: [DONE]", {"stop": ["a"] * 99},
                    b'data: {"error":{"message":'),
    "text": Waiting("/v1/completions", {"prompt": "a", "max_tokens": 4, "stream": True}, _COMMENT, b"data: [DONE]",
                    {"stop": ["a"] * 99}, b'data: {"error":{"message":'),
    "messages": Waiting("/v1/messages", {"model": "m", "messages": _MESSAGE, "max_tokens": 8, "stream": True},
                        b': Loading the model: 43 %\nevent: ping\ndata: {"type":"ping"}\n\n', b"event: message_stop",
                        {"stop_sequences": ["a"] * 99},
                        b'event: error\ndata: {"type":"error","error":{"type":"invalid_request_error","message":'),
    "responses": Waiting("/v1/responses", {"input": "hello", "max_output_tokens": 8, "temperature": 0, "stream": True},
                         _COMMENT, b"event: response.incomplete", {"top_p": 9.0},
                         b'event: error\ndata: {"type":"error","sequence_number":0,"code":"invalid_value","message":'),
    "ollama": Waiting("/api/chat", {"model": "m", "messages": _MESSAGE}, b" ", b'"done":true',
                      {"options": {"stop": ["a"] * 99}},
                      b'{"error":'),
    "llamacpp": Waiting("/completion", {"prompt": "a", "n_predict": 4, "stream": True}, _COMMENT,
                        b'"stop":true', {"stop": ["a"] * 99},
                        b'data: {"error":{"message":'),
}  # fmt: skip
EACH = pytest.mark.parametrize("kind", STREAMS.values(), ids=STREAMS)


async def waiting(daemon: Daemon, n: int) -> None:
    """Waits until n requests wait for the model."""
    async with asyncio.timeout(SETTLE_S):
        while daemon.state.admission.n_live != n:
            await asyncio.sleep(0.001)


async def test_a_request_waits_for_the_model(tmp_path: Path, gate: threading.Event) -> None:
    async with loading(tmp_path, gate, keepalive_interval=0.1) as daemon:
        asked = [
            asyncio.create_task(daemon.ask("POST", "/v1/chat/completions", chat(session_id="a"))),
            asyncio.create_task(daemon.ask("POST", "/tokenize", {"content": "hello"})),
            asyncio.create_task(daemon.ask("POST", "/v1/completions", b"{")),
        ]
        await waiting(daemon, 3)
        gate.set()
        answers = await asyncio.gather(*asked)
        assert [answer.status for answer in answers] == [200, 200, 400]
        assert answers[0].headers["X-LLM-Session-Id"] == "a" and answers[0].json["choices"]
        assert answers[2].code == "invalid_json"
        assert daemon.state.admission.n_live == 0


@EACH
async def test_a_stream_reports_how_much_is_loaded(tmp_path: Path, gate: threading.Event, kind: Waiting) -> None:
    async with loading(tmp_path, gate, keepalive_interval=0.1) as daemon:
        daemon.state.loading = Loading(lambda: 437)
        async with daemon.http.post(daemon.url + kind.path, json=kind.body) as response, asyncio.timeout(SETTLE_S):
            assert response.status == 200 and "X-Request-Id" in response.headers
            assert await response.content.readexactly(len(kind.progress)) == kind.progress
            gate.set()
            text = await response.read()
        assert kind.last in text and kind.error not in text
    assert daemon.state.metrics.streams_open == 0


@EACH
async def test_an_error_after_a_stream_has_begun_is_an_event(
    tmp_path: Path, gate: threading.Event, kind: Waiting
) -> None:
    async with loading(tmp_path, gate, keepalive_interval=0.1) as daemon:
        daemon.state.loading = Loading(lambda: 437)
        body = {**kind.body, **kind.mistake}
        async with daemon.http.post(daemon.url + kind.path, json=body) as response, asyncio.timeout(SETTLE_S):
            assert await response.content.readexactly(len(kind.progress)) == kind.progress
            gate.set()
            text = await response.read()
        text = text.replace(kind.progress, b"").lstrip()  # progress can be reported again before the model is loaded
        assert text.startswith(kind.error) and kind.last not in text


async def test_a_complete_answer_in_a_stream_that_has_begun(tmp_path: Path, gate: threading.Event) -> None:
    """Ollama's clients send a chat without messages to load the model."""
    async with loading(tmp_path, gate, keepalive_interval=0.1) as daemon:
        async with daemon.http.post(daemon.url + "/api/chat", json={"model": "m", "messages": []}) as response:
            assert await response.content.readexactly(1) == b" "
            gate.set()
            text = await response.read()
        assert text.endswith(b"\n") and json.loads(text)["done_reason"] == "load"


@pytest.mark.parametrize("stream", [False, True])
async def test_a_client_that_leaves_no_longer_waits(tmp_path: Path, gate: threading.Event, stream: bool) -> None:
    async with loading(tmp_path, gate, keepalive_interval=0.1) as daemon:
        asked = asyncio.create_task(daemon.ask("POST", "/v1/chat/completions", chat(stream=stream)))
        await waiting(daemon, 1)
        asked.cancel()
        await waiting(daemon, 0)
        assert not gate.is_set()


async def test_how_many_requests_wait_is_limited(tmp_path: Path, gate: threading.Event) -> None:
    async with loading(tmp_path, gate) as daemon:
        daemon.state.admission.limit = 1
        asked = asyncio.create_task(daemon.chat())
        await waiting(daemon, 1)
        assert (await daemon.ask("POST", "/v1/chat/completions", chat())).code == "overloaded"
        gate.set()
        await asked


async def test_how_many_bytes_wait_is_limited(
    tmp_path: Path, gate: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "BODIES_BYTES_IN_FLIGHT_MAX", 1000)
    async with loading(tmp_path, gate) as daemon:
        asked = asyncio.create_task(daemon.chat("a" * 600))
        await waiting(daemon, 1)
        while daemon.app[BODIES].n_bytes < 600:
            await asyncio.sleep(0.001)
        assert (await daemon.ask("POST", "/v1/chat/completions", chat("a" * 600))).code == "overloaded"
        gate.set()
        await asked


async def test_a_body_that_is_too_large_does_not_wait(tmp_path: Path, gate: threading.Event) -> None:
    async with loading(tmp_path, gate, body_limit=1024) as daemon:
        assert (await daemon.ask("POST", "/v1/chat/completions", b"{" * 2000)).code == "request_too_large"


@pytest.mark.parametrize(
    ("options", "code"),
    [({"load_wait": 0.05}, "model_loading"), ({"request_timeout": 0.05}, "deadline_exceeded")],
)
async def test_how_long_a_request_waits_is_limited(
    tmp_path: Path, gate: threading.Event, options: dict[str, float], code: str
) -> None:
    async with loading(tmp_path, gate, **options) as daemon:
        assert (await daemon.ask("POST", "/v1/chat/completions", chat())).code == code


async def test_a_stop_ends_the_wait(tmp_path: Path, gate: threading.Event) -> None:
    async with loading(tmp_path, gate) as daemon:
        asked = asyncio.create_task(daemon.ask("POST", "/v1/chat/completions", chat()))
        await waiting(daemon, 1)
        daemon.state.stop()
        assert (await asked).code == "shutting_down"


async def test_a_model_that_fails_to_load_ends_the_wait(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gate = threading.Event()

    def fail_later(options: EngineOptions) -> Any:
        gate.wait()
        raise EngineError("the file is cut off", "model")

    monkeypatch.setattr("llmd.engine.loader.open_engine", fail_later)
    app = create_app(config_of(tmp_path, keepalive_interval=0.1, state_dir=None), keys_of(None, None))
    runner = runner_of(app)
    await runner.setup()
    await web.UnixSite(runner, tmp_path / "llmd.sock").start()
    async with asyncio.timeout(SETTLE_S), ClientSession(connector=UnixConnector(str(tmp_path / "llmd.sock"))) as client:
        plain = asyncio.create_task(client.post("http://llmd/v1/chat/completions", json=chat()))
        async with client.post("http://llmd/v1/chat/completions", json=chat(stream=True)) as stream:
            await stream.content.readuntil(b"\n\n")
            while app[STATE].admission.n_live != 2:
                await asyncio.sleep(0.001)
            gate.set()
            streamed = parse_events((await stream.read()).lstrip()).error
            async with await plain as answer:
                status, error, headers = answer.status, (await answer.json())["error"], answer.headers
    assert (status, error["code"], headers["x-should-retry"]) == (500, "model_failed", "false")
    assert error["message"] == "The model could not be loaded: the file is cut off" and error == streamed
    await runner.cleanup()


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


VERBS = (
    "status", "status --json", "models", "sessions list", "sessions show a",
    "sessions reset a", "sessions close a", "sessions explain a", "sessions fork a b", "sessions park a",
    "sessions pin a", "sessions rename a b", "sessions save a label", "sessions load label", "sessions saved list",
    "sessions saved remove label", "top",
)  # fmt: skip


def leaves(parser: argparse.ArgumentParser, *path: str) -> Iterator[str]:
    """Yields every verb of a parser."""
    groups = [action for action in parser._actions if isinstance(action, argparse._SubParsersAction)]
    if not groups:
        yield " ".join(path)
    for group in groups:
        for name, below in group.choices.items():
            yield from leaves(below, *path, name)


def test_every_verb_is_tried() -> None:
    untried = {verb for verb in leaves(ctl.parser()) if not any(f"{tried} ".startswith(f"{verb} ") for tried in VERBS)}
    assert untried == {"chat", "help", "logs", "version", "models list", "models show", "models pull", "models remove"}


async def test_a_chat_waits(
    tmp_path: Path, gate: threading.Event, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("hello\n"))
    monkeypatch.setattr("llmd.ctl.chat.signal.signal", lambda *_: None)  # only the main thread may do this
    async with loading(tmp_path, gate, keepalive_interval=0.1) as daemon:
        chatting = asyncio.create_task(asyncio.to_thread(ctl.main, ["--socket", str(daemon.config.socket), "chat"]))
        await waiting(daemon, 1)
        gate.set()
        assert await chatting == EXIT_OK
    assert "generated]" in capsys.readouterr().err


@pytest.mark.parametrize("verb", VERBS)
async def test_llmctl_says_so(
    tmp_path: Path,
    gate: threading.Event,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    verb: str,
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("hello\n"))
    monkeypatch.setattr("llmd.ctl.chat.signal.signal", lambda *_: None)  # only the main thread may do this
    async with loading(tmp_path, gate) as daemon:
        arguments = ["--socket", str(daemon.config.socket), *verb.split()]
        assert await asyncio.to_thread(ctl.main, arguments) == EXIT_ABSENT
        said = capsys.readouterr()
        assert said.out == ""
        if "--json" in verb:
            assert json.loads(said.err)["error"]["code"] == "daemon_starting"
        else:
            assert "still loads its model" in said.err and "see its progress" in said.err


async def test_llmctl_tells_versions(tmp_path: Path, gate: threading.Event, capsys: pytest.CaptureFixture[str]) -> None:
    async with loading(tmp_path, gate) as daemon:
        assert await asyncio.to_thread(ctl.main, ["--socket", str(daemon.config.socket), "version"]) == EXIT_OK
    assert f"llmd    {__version__}" in capsys.readouterr().out


async def test_a_slow_reader_is_cut(tmp_path: Path, gate: threading.Event, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "UNREAD_S_MAX", 0.1)
    monkeypatch.setattr(connections, "_SWEEP_S", 0.05)
    async with loading(tmp_path, gate, slow_reader_timeout=0.05) as daemon, asyncio.timeout(SETTLE_S):
        reader, writer = await asyncio.open_unix_connection(str(daemon.config.socket), limit=1024)
        writer.write(b"GET /openapi.json HTTP/1.1\r\nHost: localhost\r\n\r\n" * 1000)
        while daemon.state.metrics.connections_open == 0:
            await asyncio.sleep(0.01)
        while daemon.state.metrics.connections_open:
            await asyncio.sleep(0.01)
        assert (await daemon.ask("GET", "/ready")).json["status"] == "loading"
        writer.transport.abort()


# --- the process -----------------------------------------------------------------------------------------------------


@pytest.fixture
def slow(tmp_path: Path) -> Iterator[Callable[..., Process]]:
    """Starts a daemon that listens, but loads its model only when tmp_path/gate exists."""
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


def test_llmctl_looks_for_a_segment_that_is_not_there_yet(
    slow: Callable[..., Process], capsys: pytest.CaptureFixture[str]
) -> None:
    process = slow()
    show = ["--socket", str(process.socket), "sessions", "show", "a", "--tokens"]
    while "still loads its model" not in capsys.readouterr().err:  # it has no session table yet
        assert ctl.main(show) == EXIT_ABSENT
    process.popen.send_signal(signal.SIGTERM)
    assert process.popen.wait(timeout=60) == 0
    assert ctl.main(show) == EXIT_ABSENT
    err = capsys.readouterr().err
    assert "session table" in err and "does not exist" in err


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


@pytest.mark.parametrize(
    ("action", "status", "last"),
    [
        ("signal.raise_signal(signal.SIGINT)", 130, '{"time":'),
        ("raise ImportError('it is not installed')", 1, "llmd: it is not installed"),
        ("raise ValueError('it is broken')", 1, "ValueError: it is broken"),
    ],
)
@pytest.mark.parametrize("module", ["uvloop", "llmd.app"])
def test_what_ends_the_start_does_not_wait_for_the_model(
    start: Start, tmp_path: Path, module: str, action: str, status: int, last: str
) -> None:
    """The failure comes before the event loop exists, or while it runs. The model is never loaded."""
    start.program = [sys.executable, "-c", ENDING, action, module]
    ended, errors = start.fails()
    assert ended == status and errors.splitlines()[-1].startswith(last), errors
    assert ("Traceback" in errors) == ("ValueError" in action)
    assert not (tmp_path / "run" / "llmd.sock").exists()


def test_a_library_of_another_build_ends_the_start_before_anything_is_opened(start: Start, tmp_path: Path) -> None:
    start.program = [sys.executable, "-c", DIFFERING]
    status, errors = start.fails()
    assert status == 1 and errors.splitlines()[-1] == (
        "llmd: the daemon and its native library have different versions; build both again with: ./build.sh setup "
        "(Save.label: only the daemon or only libllm knows it)"
    )
    assert not (tmp_path / "run" / "llmd.sock").exists()


def test_the_keys_are_those_that_were_read_before_the_model(start: Start, tmp_path: Path) -> None:
    keys = key_file(tmp_path)
    start.program = [sys.executable, "-c", ENDING, f"import os; os.unlink({str(keys)!r})", "llmd.app"]
    process = Process(start.popen("--api-key-file", str(keys)), [], 0, tmp_path / "run" / "llmd.sock")
    process.port = int(process.wait_for("listening")["addresses"].split()[0].rpartition(":")[2])
    assert not keys.exists()
    status, answer = process.ask("GET", "/v1/models")
    assert (status, answer["error"]["code"]) == (401, "invalid_api_key")
    process.popen.send_signal(signal.SIGTERM)
    assert process.popen.wait(timeout=60) == 0


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    starter = Start(tmp_path)
    yield starter
    starter.close()
