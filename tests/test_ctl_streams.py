"""llmctl with unusual standard streams, locales, and a daemon that answers nonsense. llmctl must always end with a
sentence and an exit status, and never with a traceback.
"""

from __future__ import annotations

import json
import os
import random
import shlex
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from llmd.ctl.context import (
    EXIT_ABSENT,
    EXIT_NOT_FOUND,
    EXIT_OK,
    EXIT_PIPE_CLOSED,
    EXIT_REFUSED,
    EXIT_STREAM,
    EXIT_USAGE,
)
from tests.fake_daemon import CHAT, Exchange, FakeDaemon, Json, Route, asked, chunk, echo, home

SESSION: Json = {"id": "a", "state": "idle", "tokens": 7, "client": "llmctl"}
VERBS = (
    "status", "version", "logs", "models", "sessions list", "sessions show a", "sessions explain a", "sessions reset a",
    "sessions close a", "sessions fork a b", "sessions park a", "sessions pin a", "sessions rename a b",
    "sessions save a l", "sessions load l --as a", "chat --session a", "--help", "sessions --help",
)  # fmt: skip
FEW = ("version", "sessions reset a", "chat --session a", "--help")
ACTIONS = ("reset", "fork", "park", "pin", "rename", "save", "load")


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[FakeDaemon]:
    fake = FakeDaemon(tmp_path / "llmd.sock")
    fake.route(CHAT, echo)
    fake.route("GET /live", {"status": "ok", "version": "0", "pid": 1})
    fake.route("GET /ready", {"status": "ready", "model": "tiny"})
    fake.route("GET /metrics", "llmd_steps_total 1\n")
    fake.route("GET /v1/models", {"data": [{"id": "tiny"}]})
    fake.route("GET /v1/sessions", {"data": [SESSION]})
    fake.route("GET /v1/sessions/a", SESSION)
    fake.route("DELETE /v1/sessions/a", SESSION)
    fake.route("GET /v1/sessions/a/explain", {"id": "a", "turns": []})
    for action in ACTIONS:
        fake.route(f"POST /v1/sessions/a/{action}", SESSION)
    yield fake
    fake.stop()


def run(
    daemon: FakeDaemon, line: str, redirect: str = "", lines: bytes = b"hello\n", settings: dict[str, str] | None = None
) -> subprocess.CompletedProcess[bytes]:
    """Runs llmctl in a shell, which closes or redirects streams. Removes variables that change Python's streams or
    locale.
    """
    command = f"exec {shlex.join([sys.executable, '-m', 'llmd.ctl', '--socket', daemon.path])} {line} {redirect}"
    cleaned = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "LC_", "LANG"))}
    cleaned |= {"XDG_STATE_HOME": str(home(daemon)), "PYTHONPATH": os.environ.get("PYTHONPATH", "")} | (settings or {})
    return subprocess.run(["sh", "-c", command], input=lines, capture_output=True, check=False, timeout=60, env=cleaned)


def lines_of(said: bytes) -> list[str]:
    assert b"Traceback" not in said and b"Exception ignored" not in said, said.decode()
    return said.decode().splitlines()


# --- streams ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("verb", VERBS)
def test_a_full_standard_output(daemon: FakeDaemon, verb: str) -> None:
    settings = {"PYTHONUNBUFFERED": "1"} if verb == "models" else {}
    done = run(daemon, verb, ">/dev/full", settings=settings)
    assert done.returncode == EXIT_STREAM
    assert lines_of(done.stderr)[-1] == "llmctl: standard output cannot be written: No space left on device"


@pytest.mark.parametrize("verb", FEW)
def test_a_closed_standard_output(daemon: FakeDaemon, verb: str) -> None:
    """The failure is detected before llmctl sends a request."""
    done = run(daemon, verb, ">&-")
    assert done.returncode == EXIT_STREAM and daemon.asked == []
    assert lines_of(done.stderr) == ["llmctl: standard output cannot be written: it is closed"]


@pytest.mark.parametrize("verb", FEW)
def test_a_closed_standard_input(daemon: FakeDaemon, verb: str) -> None:
    done = run(daemon, verb, "<&-")
    expected = ["llmctl: standard input cannot be read: it is closed"] if verb.startswith("chat") else []
    assert done.returncode == (EXIT_STREAM if expected else EXIT_OK)
    assert [line for line in lines_of(done.stderr) if "llmctl has version" not in line] == expected


@pytest.mark.parametrize("redirect", ["2>&-", "2>/dev/full"])
@pytest.mark.parametrize("verb", [*FEW, "sessions show nobody", "nonsense"])
def test_a_standard_error_that_takes_nothing(daemon: FakeDaemon, verb: str, redirect: str) -> None:
    """Remarks are lost, but answers and exit statuses are the same, and the answers contain no error."""
    plain, silent = run(daemon, verb), run(daemon, verb, redirect)
    assert (silent.returncode, silent.stdout) == (plain.returncode, plain.stdout)
    assert plain.returncode == {"sessions show nobody": EXIT_NOT_FOUND, "nonsense": EXIT_USAGE}.get(verb, EXIT_OK)
    assert silent.stderr == b""


def test_nothing_at_all(daemon: FakeDaemon) -> None:
    assert run(daemon, "models", "<&- >&- 2>&-").returncode == EXIT_STREAM
    assert run(daemon, "models", "<&- 2>&-").returncode == EXIT_OK


def test_standard_input_that_cannot_be_read(daemon: FakeDaemon) -> None:
    done = run(daemon, "chat --session a", "0>/dev/null")
    assert done.returncode == EXIT_STREAM
    assert "standard input cannot be read" in lines_of(done.stderr)[-1]


def test_a_reader_that_has_seen_enough(daemon: FakeDaemon) -> None:
    daemon.route("GET /v1/sessions", {"data": [SESSION | {"id": f"s{n}"} for n in range(20_000)]})
    for option in ("", "--json"):
        command = f"{shlex.join([sys.executable, '-m', 'llmd.ctl', '--socket', daemon.path])} sessions list {option}"
        for unbuffered in ("", "PYTHONUNBUFFERED=1 "):
            line = f"{{ {unbuffered}{command}; echo $? >&2; }} | head -c 100"
            done = subprocess.run(["sh", "-c", line], capture_output=True, check=True, timeout=60)
            assert lines_of(done.stderr) == [str(EXIT_PIPE_CLOSED)] and len(done.stdout) == 100


# --- characters ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("locale", [{"LC_ALL": "C"}, {"LC_ALL": "C.UTF-8"}, {"PYTHONIOENCODING": "ascii"}])
def test_input_that_is_no_text_is_replaced(daemon: FakeDaemon, locale: dict[str, str]) -> None:
    done = run(daemon, "chat --session a", "", b"good \xff\xfe bad\nnext\n", locale)
    assert done.returncode == EXIT_OK
    assert [request["messages"][-1]["content"] for request in asked(daemon)] == ["good \ufffd\ufffd bad", "next"]


@pytest.mark.parametrize("option", ["", "--json"])
@pytest.mark.parametrize("locale", [{"LC_ALL": "C"}, {"PYTHONIOENCODING": "ascii"}, {"PYTHONIOENCODING": "latin-1"}])
def test_any_answer_can_be_written(daemon: FakeDaemon, option: str, locale: dict[str, str]) -> None:
    """Characters that the locale cannot encode are escaped, and JSON stays valid JSON."""
    daemon.route("GET /v1/models", '{"data": [{"id": "\\ud800 \u00fcber \u732b \U0001f408"}]}')
    done = run(daemon, f"models {option}", settings=locale)
    assert (done.returncode, done.stderr) == (EXIT_OK, b"")
    if option:
        (model,) = json.loads(done.stdout)["data"]
        assert model["id"] == "\ud800 \u00fcber \u732b \U0001f408"
    daemon.route(CHAT, tells("\u732b\ud800"))
    done = run(daemon, f"chat --session a {option}", settings=locale)
    assert done.returncode == EXIT_OK and done.stdout
    lines_of(done.stderr)


def tells(text: str) -> Route:
    def tell(exchange: Exchange) -> None:
        exchange.begin_stream()
        exchange.send(chunk(text))
        exchange.end_stream()

    return tell


def test_arguments_that_are_no_text(daemon: FakeDaemon) -> None:
    done = run(daemon, "sessions show \"$(printf '\\377')\"")
    assert done.returncode == EXIT_NOT_FOUND
    lines_of(done.stderr)
    assert daemon.asked[-1].path == "/v1/sessions/%FF"
    done = run(daemon, "chat --session a --system \"$(printf '\\377')\"")
    assert done.returncode == EXIT_OK and lines_of(done.stderr)


def test_errors_of_the_daemon_do_not_steer_the_terminal(daemon: FakeDaemon) -> None:
    daemon.route("GET /v1/models", lambda exchange: exchange.refuse(503, "x", "red \x1b[31m"))
    assert b"\x1b" not in run(daemon, "models").stderr


def test_a_turn_of_megabytes(daemon: FakeDaemon) -> None:
    done = run(daemon, "chat --session a", "", b"x" * (4 << 20) + b"\n")
    assert done.returncode == EXIT_OK and len(done.stdout) == (4 << 20) + 1


def test_a_turn_that_is_refused_before_it_was_read(daemon: FakeDaemon) -> None:
    def refuse(path: str) -> None:
        connection, _ = listener.accept()
        with connection:
            connection.recv(1000)
            connection.sendall(b"HTTP/1.1 413 Too Large\r\ncontent-length: 54\r\n\r\n")
            connection.sendall(b'{"error": {"code": "too_large", "message": "Too long"}}'[:54])
            connection.shutdown(socket.SHUT_RDWR)

    path = f"{daemon.path}.413"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(path)
        listener.listen()
        thread = threading.Thread(target=refuse, args=(path,))
        thread.start()
        done = run(daemon, f"--socket {path} chat --session a", "", b"x" * (4 << 20) + b"\n")
        thread.join()
    assert done.returncode == EXIT_REFUSED, done.stderr
    lines_of(done.stderr)


# --- nonsense from the other side ------------------------------------------------------------------------------------


@pytest.mark.parametrize("verb", ["models", "sessions list", "sessions show a", "sessions explain a"])
@pytest.mark.parametrize(
    "body",
    ['{"data": 5, "turns": 5, "timelines": 5}', '{"data": [5], "turns": [5], "tokens": "x"}', "[" * 50_000]
    + ['{"data": [{"meta": 5, "timelines": [5, 5], "tokens": []}], "turns": [{"at_ms": "x"}], "timelines": [1, 2]}'],
    ids=["numbers", "lists of numbers", "deep", "wrong leaves"],
)
def test_json_of_another_form(daemon: FakeDaemon, verb: str, body: str) -> None:
    for request in list(daemon.routes):
        if request.startswith("GET") and request != "GET /metrics":
            daemon.route(request, body)
    done = run(daemon, verb)
    assert done.returncode == EXIT_ABSENT
    assert "the program that answers at" in lines_of(done.stderr)[0]


@pytest.mark.parametrize("data", [{"choices": 5}, {"choices": [5]}, {"choices": [{"delta": {"content": 5}}]}])
def test_a_stream_of_another_form(daemon: FakeDaemon, data: Json) -> None:
    def nonsense(exchange: Exchange) -> None:
        exchange.begin_stream()
        exchange.send(data)
        exchange.end_stream()

    daemon.route(CHAT, nonsense)
    done = run(daemon, "chat --session a")
    assert done.returncode == EXIT_ABSENT
    assert "the program that answers at" in lines_of(done.stderr)[0]


def nonsense_of(seed: int) -> bytes:
    """Returns random bytes, valid headers followed by random bytes, or a valid answer with changed bytes."""
    source = random.Random(seed)
    noise = source.randbytes(source.randrange(200))
    honest = b'HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 12\r\n\r\n{"data": []}'
    chunked = b'HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n1f\r\ndata: {"choices": []}\n\n'
    text = bytearray(source.choice([honest, chunked]))
    for _ in range(source.randrange(4)):
        text[source.randrange(len(text))] = source.randrange(256)
    return source.choice([noise, bytes(text), bytes(text) + noise, b"HTTP/1.1 200 OK\r\n" + noise, b"HTTP/9.9 200\r\n"])


@pytest.mark.parametrize("verb", ["models", "sessions show a", "chat --session a"])
def test_bytes_that_are_no_http(daemon: FakeDaemon, verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    from llmd.ctl import __main__ as ctl

    path = f"{daemon.path}.raw"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(path)
        listener.listen()
        for seed in range(150):
            thread = threading.Thread(target=answer_with, args=(listener, nonsense_of(seed)))
            thread.start()
            code = run_here(ctl, path, verb)
            thread.join()
            assert code in (EXIT_OK, EXIT_REFUSED, EXIT_ABSENT, EXIT_NOT_FOUND), (seed, nonsense_of(seed))
            lines_of(capsys.readouterr().err.encode("utf-8", "replace"))


def answer_with(listener: socket.socket, payload: bytes) -> None:
    connection, _ = listener.accept()
    with connection:
        connection.recv(65536)
        connection.sendall(payload)


def run_here(ctl: object, path: str, verb: str) -> int:
    from llmd.ctl.client import Client, DaemonAbsent, DaemonRefused

    if not verb.startswith("chat"):
        code: int = ctl.main(["--socket", path, "--timeout", "5", *verb.split()])  # type: ignore[attr-defined]
        return code
    try:
        list(Client(path, 5, 5).chat({}))
    except DaemonRefused:
        return EXIT_REFUSED
    except DaemonAbsent:
        return EXIT_ABSENT
    return EXIT_OK


def test_a_daemon_that_falls_silent_in_an_answer(daemon: FakeDaemon) -> None:
    def hang(exchange: Exchange) -> None:
        exchange.begin_stream()
        exchange.send(chunk("par"))
        exchange.client_left()
        exchange.close_connection = True

    daemon.route(CHAT, hang)
    done = run(daemon, "--timeout 0.5 chat --session a")
    assert (done.returncode, done.stdout) == (EXIT_ABSENT, b"par\n")
    assert "did not answer in time" in lines_of(done.stderr)[0]
