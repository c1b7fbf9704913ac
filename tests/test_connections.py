# ruff: noqa: ASYNC110 - conditions here have no event of their own
"""The code between a socket and a handler: limits on heads, bodies, times and connections."""

from __future__ import annotations

import asyncio
import gzip
import inspect
import json
import logging
import socket
import struct
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import pytest
from aiohttp import web

from llmd.core import limits
from llmd.http import connections
from llmd.http.connection import Connection
from llmd.http.metrics import LOOP_LAG
from llmd.http.peer_user import PeerUsers
from llmd.http.receive import BODIES
from llmd.http.watches import LoopLag
from tests.conftest import Serve
from tests.serving import SETTLE_S, Daemon, Json, chat
from tests.test_delivery import outcomes, slow_reader
from tests.test_sessions import ENDLESS, SLOW

HEALTH = b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n"
CHAT = "/v1/chat/completions"


@dataclass
class Raw:
    """An answer as it was received, without a client library."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def error(self) -> Json:
        error = json.loads(self.body)["error"]
        assert isinstance(error, dict) and set(error) == {"message", "type", "code", "param"}
        return error


Wire = tuple[asyncio.StreamReader, asyncio.StreamWriter]


@asynccontextmanager
async def connected(daemon: Daemon, local: bool = False) -> AsyncIterator[Wire]:
    """Opens a connection. Everything that is awaited inside the block has a deadline."""
    async with asyncio.timeout(SETTLE_S):
        if local:
            reader, writer = await asyncio.open_unix_connection(str(daemon.config.socket))
        else:
            reader, writer = await asyncio.open_connection("127.0.0.1", int(daemon.url.rpartition(":")[2]))
        try:
            yield reader, writer
        finally:
            writer.transport.abort()


async def read_answer(reader: asyncio.StreamReader) -> Raw:
    """Returns the next answer. Skips interim answers."""
    while True:
        lines = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
        status = int(lines[0].split(" ")[1])
        if status >= 200:
            break
    headers = {name.lower(): value for name, value in (line.split(": ", 1) for line in lines[1:] if line)}
    if "content-length" in headers:
        return Raw(status, headers, await reader.readexactly(int(headers["content-length"])))
    body = b""
    while (size := int(await reader.readline(), 16)) > 0:
        body += (await reader.readexactly(size + 2))[:-2]
    await reader.readexactly(2)
    return Raw(status, headers, body)


async def told(daemon: Daemon, data: bytes) -> Raw:
    """Sends these bytes, returns the answer, and checks that the server then closes the connection."""
    async with connected(daemon) as (reader, writer):
        writer.write(data)
        answer = await read_answer(reader)
        writer.close()
        assert await reader.read() == b""
        return answer


def post(body: bytes, *headers: str, path: str = CHAT, length: int | None = None) -> bytes:
    lines = [f"POST {path} HTTP/1.1", "Host: localhost", f"Content-Length: {len(body) if length is None else length}"]
    return "\r\n".join([*lines, *headers, "\r\n"]).encode() + body


# --- aiohttp ---------------------------------------------------------------------------------------------------------


def test_what_is_used_of_aiohttp_is_there() -> None:
    """If this test fails, aiohttp has changed. Compare its web_protocol.py with http/connection.py and
    http/connections.py.
    """
    ours = {name for name, one in vars(Connection).items() if inspect.isfunction(one)}
    assert {"data_received", "eof_received", "finish_response", "handle_error", "connection_made"} <= ours
    for name in ("data_received", "eof_received", "connection_made", "connection_lost", "pause_writing",
                 "resume_writing", "finish_response", "handle_error", "force_close"):  # fmt: skip
        theirs = inspect.signature(getattr(web.RequestHandler, name))
        assert list(inspect.signature(getattr(Connection, name)).parameters) == list(theirs.parameters)
    assert "_messages" in web.RequestHandler.__slots__
    settings = set(inspect.signature(web.RequestHandler.__init__).parameters)
    assert {"max_line_size", "max_field_size", "max_headers", "auto_decompress", "lingering_time"} <= settings
    assert inspect.iscoroutinefunction(web.AppRunner._make_server)


async def test_every_connection_is_ours(daemon: Daemon) -> None:
    assert (await daemon.ask("GET", "/health")).status == 200
    assert (await daemon.metrics())["llmd_connections_open"] >= 1


# --- heads -----------------------------------------------------------------------------------------------------------

MALFORMED = {
    "no HTTP": b"hello\r\n\r\n",
    "TLS": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
    "HTTP/2": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "no host": b"GET / HTTP/1.1\r\n\r\n",
    "two hosts": b"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
    "length and encoding": b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\nabc",
    "negative length": b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: -3\r\n\r\n",
    "header without colon": b"GET / HTTP/1.1\r\nHost: a\r\nnonsense\r\n\r\n",
    "NUL in a header": b"GET / HTTP/1.1\r\nHost: a\r\nX: a\0b\r\n\r\n",
    "space in the URL": b"GET /a b HTTP/1.1\r\nHost: a\r\n\r\n",
}


@pytest.mark.parametrize("data", MALFORMED.values(), ids=MALFORMED.keys())
async def test_malformed_http_is_told_so(daemon: Daemon, data: bytes, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG):
        answer = await told(daemon, data)
    assert answer.status == 400 and answer.error["code"] == "invalid_http"
    assert answer.error["message"].endswith(".") and not answer.error["message"].endswith("..")
    assert answer.headers["connection"] == "close"
    [record] = [record for record in caplog.records if record.name.startswith(("llmd", "aiohttp"))]
    assert record.exc_info is None and "\n" not in str(vars(record)["fields"])
    assert (await daemon.ask("GET", "/health")).status == 200
    assert (await daemon.metrics())['llmd_http_responses_total{endpoint="unmatched",status="400"}'] == 1


LARGE_HEADS = {
    "headers": HEALTH[:-2] + b"X-A: b\r\n" * 10_000 + b"\r\n",
    "header": HEALTH[:-2] + b"X-A: " + b"b" * 100_000 + b"\r\n\r\n",
    "name": HEALTH[:-2] + b"b" * 100_000 + b": x\r\n\r\n",
    "URL": b"GET /" + b"x" * 100_000 + b" HTTP/1.1\r\nHost: a\r\n\r\n",
    "sum": HEALTH[:-2] + (b"X-A: " + b"b" * 8000 + b"\r\n") * 99 + b"\r\n",
}


@pytest.mark.parametrize("data", LARGE_HEADS.values(), ids=LARGE_HEADS.keys())
async def test_a_head_has_a_size(daemon: Daemon, data: bytes) -> None:
    answer = await told(daemon, data)
    assert answer.status == 431 and answer.error["code"] == "headers_too_large"
    assert str(limits.HEADERS_MAX) in answer.error["message"]


async def test_a_head_has_a_time(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "HEAD_S_MAX", 0.1)
    monkeypatch.setattr(connections, "_SWEEP_S", 0.05)
    daemon = await serve()
    answer = await told(daemon, HEALTH[:-4])
    assert answer.status == 408 and answer.error["code"] == "request_timeout"
    async with connected(daemon) as (reader, _):
        assert await reader.read() == b""  # a client that sends nothing gets no answer
    async with connected(daemon) as (reader, writer):
        writer.write(HEALTH)
        assert (await read_answer(reader)).status == 200
        writer.write(b"G")
        assert (await read_answer(reader)).error["code"] == "request_timeout"


async def test_headers_come_in_any_pieces(daemon: Daemon) -> None:
    async with connected(daemon) as (reader, writer):
        for byte in HEALTH:
            writer.write(bytes([byte]))
            await writer.drain()
            await asyncio.sleep(0)
        assert (await read_answer(reader)).status == 200


# --- bodies ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("encoding", ["gzip", "deflate", "br", "zstd", "gzip, gzip", "unknown"])
async def test_compressed_bodies_are_refused(daemon: Daemon, encoding: str) -> None:
    body = gzip.compress(json.dumps(chat()).encode())
    for data in (body, b"no gzip"):
        answer = await told_and_open(daemon, post(data, f"Content-Encoding: {encoding}"))
        assert answer.status == 415 and answer.error["code"] == "unsupported_encoding"
        assert answer.error["param"] == "Content-Encoding"
    answer = await told_and_open(daemon, post(body, f"Content-Encoding: {encoding}", path="/nothing"))
    assert answer.status == 404
    identity = await told_and_open(daemon, post(json.dumps(chat()).encode(), "Content-Encoding: identity"))
    assert identity.status == 200


async def told_and_open(daemon: Daemon, data: bytes) -> Raw:
    """Sends these bytes, returns the answer, and checks that the connection can still be used."""
    async with connected(daemon) as (reader, writer):
        writer.write(data)
        answer = await read_answer(reader)
        writer.write(HEALTH)
        assert (await read_answer(reader)).status == 200
        return answer


async def test_a_compressed_transfer_is_refused(daemon: Daemon) -> None:
    head = f"POST {CHAT} HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n"
    answer = await told_and_open(daemon, head.encode())
    assert answer.status == 415 and answer.error["param"] == "Transfer-Encoding"


async def test_a_body_may_come_in_chunks(daemon: Daemon) -> None:
    body = json.dumps(chat()).encode()
    chunks = b"".join(b"%x\r\n%s\r\n" % (1, bytes([byte])) for byte in body) + b"0\r\n\r\n"
    head = f"POST {CHAT} HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"
    assert (await told_and_open(daemon, head.encode() + chunks)).status == 200


async def test_a_broken_chunk_ends_the_request(daemon: Daemon) -> None:
    head = f"POST {CHAT} HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nabcde\r\n".encode()
    async with connected(daemon) as (reader, writer):
        writer.write(head)
        await writer.drain()
        while (await daemon.metrics()).get("llmd_connections_open", 0) < 2:
            pass
        writer.write(b"no size\r\n")
        answer = await read_answer(reader)
        assert answer.status == 400 and answer.error["code"] == "invalid_http"
        assert await reader.read() == b""


async def test_a_body_may_not_pause_for_long(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    daemon = await serve()
    monkeypatch.setattr(limits, "BODY_SILENCE_S_MAX", 0.1)
    answer = await told(daemon, post(b"{", length=100))
    assert answer.status == 408 and answer.error["code"] == "request_timeout" and "1 bytes" in answer.error["message"]
    assert answer.headers["connection"] == "close" and "x-should-retry" not in answer.headers


async def test_a_body_may_not_trickle(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    daemon = await serve()
    monkeypatch.setattr(limits, "BODY_S_MAX", 0.2)
    async with connected(daemon) as (reader, writer):
        writer.write(post(b"{", length=100_000))
        answer = asyncio.create_task(read_answer(reader))
        while not answer.done():
            writer.write(b" ")
            await asyncio.wait([answer], timeout=0.02)
        assert (await answer).error["code"] == "request_timeout"


async def test_what_is_too_large_is_not_asked_for(serve: Serve) -> None:
    """With Expect: 100-continue, a client then sends no byte of the body."""
    daemon = await serve(body_limit=4096)
    async with connected(daemon) as (reader, writer):
        writer.write(post(b"", "Expect: 100-continue", length=5000))
        assert (await reader.readuntil(b"\r\n")).startswith(b"HTTP/1.1 413 ")
    body = json.dumps(chat()).encode()
    async with connected(daemon) as (reader, writer):
        writer.write(post(b"", "Expect: 100-continue", length=len(body)))
        assert await reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
        writer.write(body)
        assert (await read_answer(reader)).status == 200
    answer = await told_and_open(daemon, post(body, "Expect: miracles"))
    assert answer.status == 417 and answer.error["code"] == "expectation_failed"


async def test_a_body_of_exactly_the_limit(serve: Serve) -> None:
    daemon = await serve(body_limit=3_000_000, model="sim:dense,ctx=1000", ctx_size=1000)
    body = json.dumps(chat()).encode()
    whole = body + b" " * (3_000_000 - len(body))
    assert (await told_and_open(daemon, post(whole))).status == 200
    assert (await told(daemon, post(whole + b" "))).status == 413


async def test_bodies_in_flight_are_bounded(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    daemon = await serve()
    monkeypatch.setattr(limits, "BODIES_BYTES_IN_FLIGHT_MAX", 60_000)
    async with connected(daemon) as (_, writer):
        writer.write(post(b"x" * 40_000, length=50_000))
        bodies = daemon.app[BODIES]
        while bodies.n_bytes < 40_000:
            await asyncio.sleep(0)
        answer = await told(daemon, post(b"x" * 40_000, length=50_000))
        assert answer.status == 503 and answer.error["code"] == "overloaded" and "retry-after" in answer.headers
    async with asyncio.timeout(SETTLE_S):
        while bodies.n_bytes:
            await asyncio.sleep(0)
    assert (await told_and_open(daemon, post(b"x" * 50_000))).error["code"] == "invalid_json"


async def test_bodies_of_one_owner_leave_room_for_others(
    serve: Serve, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    keys = tmp_path / "keys"
    keys.write_text("sk-one one\nsk-two two\n")
    keys.chmod(0o600)
    daemon = await serve(api_key_file=keys)
    monkeypatch.setattr(limits, "BODIES_BYTES_IN_FLIGHT_MAX", 80_000)  # 60 000 for each
    one, two = "Authorization: Bearer sk-one", "Authorization: Bearer sk-two"
    async with connected(daemon) as (_, writer):
        writer.write(post(b"x" * 40_000, one, length=50_000))
        bodies = daemon.app[BODIES]
        while bodies.n_bytes < 40_000:
            await asyncio.sleep(0)
        answer = await told(daemon, post(b"x" * 30_000, one, length=50_000))
        assert answer.status == 503 and answer.error["code"] == "overloaded" and "share" in answer.error["message"]
        assert (await told_and_open(daemon, post(b"x" * 30_000, two))).error["code"] == "invalid_json"
    async with asyncio.timeout(SETTLE_S):
        while bodies.n_bytes:
            await asyncio.sleep(0)
    whole = post(b"x" * 70_000, one)  # the only body of this owner
    assert (await told_and_open(daemon, whole)).error["code"] == "invalid_json"


async def test_a_refused_client_that_resets_is_no_error(
    daemon: Daemon, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    linger, lingered = Connection._linger, asyncio.Event()
    with socket.create_connection(("127.0.0.1", int(daemon.url.rpartition(":")[2]))) as client:

        async def reset_first(connection: Connection) -> None:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            client.close()
            try:
                await linger(connection)
            finally:
                lingered.set()

        monkeypatch.setattr(Connection, "_linger", reset_first)
        client.sendall(b"no HTTP\r\n\r\n")
        async with asyncio.timeout(SETTLE_S):
            await lingered.wait()
            while daemon.state.metrics.connections_open:
                await asyncio.sleep(0)
    assert not [record for record in caplog.records if record.levelno >= logging.ERROR]


# --- many connections ------------------------------------------------------------------------------------------------


@pytest.fixture
async def small(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> Daemon:
    """A daemon that allows three connections over TCP, and one over the unix socket. Idle connections can be closed at
    once.
    """
    monkeypatch.setattr(limits, "CONNECTIONS_MAX", 3)
    monkeypatch.setattr(limits, "CONNECTIONS_LOCAL_MAX", 1)
    monkeypatch.setattr(limits, "CONNECTION_IDLE_SPARED_S", 0.0)
    return await serve(model=SLOW, ctx_size=200_000)


async def test_idle_connections_make_room(small: Daemon) -> None:
    async with connected(small) as first, connected(small) as second, connected(small):
        for reader, writer in (second, first):
            writer.write(HEALTH)
            assert (await read_answer(reader)).status == 200
        assert (await small.ask("GET", "/health")).status == 200  # replaces the third, which is idle
        async with connected(small) as (reader, writer):
            writer.write(HEALTH)
            assert (await read_answer(reader)).status == 200
        assert await second[0].read() == b""
        first[1].write(HEALTH)
        assert (await read_answer(first[0])).status == 200


def test_a_burst_of_connections_keeps_nobody_out_for_long() -> None:
    class Idle:
        idle_since = 0.0
        is_closed = False

        def force_close(self) -> None:
            self.is_closed = True

    pool, oldest, newest = connections.Pool(2), Idle(), Idle()
    pool.n_open, pool.idle = 2, dict.fromkeys(cast(list[Connection], [oldest, newest]))
    assert not pool.has_capacity(0.0)  # a new connection may be about to send a request
    assert pool.has_capacity(0.1)
    pool.make_capacity()
    assert oldest.is_closed and not newest.is_closed


async def test_busy_connections_stay(small: Daemon, monkeypatch: pytest.MonkeyPatch) -> None:
    """The user of a client that is refused at the limit is not looked up."""
    body = json.dumps(chat(stream=True, **ENDLESS)).encode()
    async with connected(small) as one, connected(small) as two, connected(small) as three:
        for reader, writer in (one, two, three):
            writer.write(post(body))
            assert (await reader.readuntil(b"\r\n")).startswith(b"HTTP/1.1 200")
        with monkeypatch.context() as patched:
            patched.setattr(PeerUsers, "user_of", lambda *_: pytest.fail("the kernel was asked"))
            answer = await told(small, HEALTH)
        assert answer.status == 503 and answer.error["code"] == "too_many_connections"
        assert answer.headers["retry-after"] == str(limits.RETRY_AFTER_S)
        assert (await small.ask("GET", "/health", local=True)).status == 200  # has a place of its own
    await small.idle()
    assert (await small.ask("GET", "/health")).status == 200


async def test_one_peer_may_not_take_all(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "CONNECTIONS_PER_PEER_MAX", 2)
    monkeypatch.setattr(connections, "_LOOPBACK", "nobody")
    peers = iter(["1.2.3.4", "1.2.3.4", "1.2.3.4", "5.6.7.8"])
    monkeypatch.setattr(connections, "_peer_of", lambda _: next(peers))
    daemon = await serve()
    async with connected(daemon) as first, connected(daemon) as second:
        for reader, writer in (first, second):
            writer.write(HEALTH)
            assert (await read_answer(reader)).status == 200
        assert (await told(daemon, HEALTH)).error["code"] == "too_many_connections"
        assert (await told_and_open(daemon, HEALTH)).status == 200


@pytest.mark.parametrize(
    ("address", "peer"),
    [
        ("127.0.0.1", "loopback"),
        ("::1", "loopback"),
        ("::ffff:127.0.0.1", "loopback"),
        ("192.0.2.7", "192.0.2.7"),
        ("::ffff:192.0.2.7", "192.0.2.7"),
        ("2001:db8:1:2:3::4", "2001:db8:1:2::/64"),
        ("fe80::1%eth0", "fe80::/64"),
    ],
)
def test_who_counts_as_one_peer(address: str, peer: str) -> None:
    class Pipe(asyncio.Transport):
        def get_extra_info(self, name: str, default: object = None) -> object:
            return (address, 1) if name == "peername" else made

    with socket.socket(socket.AF_INET6) as made:
        assert connections._peer_of(Pipe()) == peer


async def test_more_refused_than_can_be_told(small: Daemon, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "CONNECTIONS_REFUSED_MAX", 0)
    monkeypatch.setattr(limits, "CONNECTION_IDLE_SPARED_S", 1e9)
    async with connected(small) as one, connected(small) as two, connected(small) as three:
        for reader, writer in (one, two, three):
            writer.write(HEALTH)
            assert (await read_answer(reader)).status == 200
        async with connected(small) as (reader, _):
            assert await reader.read() == b""


async def test_pipelined_requests_are_answered_in_order(daemon: Daemon) -> None:
    n = 500
    async with connected(daemon) as (reader, writer):
        for number in range(n):
            writer.write(HEALTH.replace(b"/health", b"/nothing-%d" % number))
        for number in range(n):
            assert f"/nothing-{number} does not exist" in (await read_answer(reader)).error["message"]


async def test_answers_that_nobody_reads(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "UNREAD_S_MAX", 0.1)
    monkeypatch.setattr(connections, "_SWEEP_S", 0.05)
    daemon = await serve(slow_reader_timeout=0.05)
    async with connected(daemon) as (_, writer):
        writer.write(HEALTH.replace(b"/health", b"/openapi.json") * 1000)
        before = (await daemon.metrics())["llmd_connections_open"]
        while (await daemon.metrics())["llmd_connections_open"] >= before:
            await asyncio.sleep(0.02)


@pytest.mark.parametrize("n_bytes", [400_000, 40_000], ids=["kept", "closed"])
async def test_an_answer_may_be_read_slowly(made: list[Connection], daemon: Daemon, n_bytes: int) -> None:
    """A slow client is served as long as it reads something. A connection that is closing still delivers its last
    bytes.
    """
    loop, long_s = asyncio.get_running_loop(), 2 * max(limits.UNREAD_S_MAX, limits.CLOSE_S_MAX)
    body = json.dumps({"content": "x" * (n_bytes // len("120,"))}).encode()
    with socket.socket(socket.AF_UNIX) as client:
        client.setblocking(False)
        async with asyncio.timeout(SETTLE_S):
            await loop.sock_connect(client, str(daemon.config.socket))
            while not (made and made[0]._pipe):
                await asyncio.sleep(0)
            [connection], pipe = made, made[0]._pipe
            pipe.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
            await loop.sock_sendall(client, post(body, "Connection: close", path="/tokenize"))
            while not (connection._is_unread or pipe.is_closing()):
                await asyncio.sleep(0)
            now, n_read = loop.time(), 0
            connection.overdue(now, limits.UNREAD_S_MAX)
            for n_wanted in (8000, 16_000, 24_000):  # steps that are more than the kernel holds
                while n_read < n_wanted:
                    data = await loop.sock_recv(client, n_wanted - n_read)
                    assert data, "it was cut"
                    n_read += len(data)
                now += long_s
                connection.overdue(now, limits.UNREAD_S_MAX)
            connection.overdue(now + long_s, limits.UNREAD_S_MAX)  # nothing more has been taken
            while data := await loop.sock_recv(client, n_bytes):
                n_read += len(data)
    assert n_read < n_bytes


async def test_a_stream_may_be_read_slowly(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the connection knows whether the client reads."""
    unread_s, asked = 0.0, 0

    def told(_: Connection, now: float) -> float:
        nonlocal asked
        asked += 1
        return unread_s

    monkeypatch.setattr(Connection, "unread_s", told)
    daemon = await serve(model="sim:dense,ctx=1000000,length=0", ctx_size=1_000_000, slow_reader_timeout=0.02)
    _, writer = await slow_reader(daemon)
    async with asyncio.timeout(SETTLE_S):
        while asked < 20:
            await asyncio.sleep(0.01)
        assert daemon.state.engine.n_live == 1
        unread_s = 1.0
        await daemon.idle()
    writer.close()
    assert (await outcomes(daemon))["slow_reader"] == 1


@pytest.mark.parametrize(("soft", "hard", "n"), [(64, 1000, 500), (64, 300, 150), (64, 100, 50), (1000, 1000, 500)])
def test_the_limit_of_open_files_is_raised_as_far_as_it_goes(soft: int, hard: int, n: int) -> None:
    program = (
        "import resource; from llmd.process.listen import descriptors_for\n"
        f"resource.setrlimit(resource.RLIMIT_NOFILE, ({soft}, {hard}))\n"
        "print(descriptors_for(500), resource.getrlimit(resource.RLIMIT_NOFILE)[0])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    wanted = 500 + limits.DESCRIPTORS_RESERVED
    assert [int(word) for word in done.stdout.split()] == [n, max(soft, min(wanted, hard))]


# --- the event loop's clock ------------------------------------------------------------------------------------------


async def blocked(block: Callable[[], None]) -> tuple[float, float]:
    """Runs `block` on the event loop. Returns the longest delay that LoopLag reports, and the part of it that was
    work.
    """
    told: list[tuple[float, float]] = []
    clock = LoopLag(asyncio.get_running_loop(), lambda late_s, worked_s: told.append((late_s, worked_s)))
    clock.start()
    clock.start()
    block()
    async with asyncio.timeout(SETTLE_S):
        while not told:
            await asyncio.sleep(0.001)
    clock.stop()
    return told[0]


async def test_the_clock_tells_of_blocks() -> None:
    late_s, worked_s = await blocked(lambda: time.sleep(0.2))
    assert late_s >= 0.15 and worked_s < late_s

    def work() -> None:
        until = time.thread_time() + 0.2
        while time.thread_time() < until:
            pass

    late_s, worked_s = await blocked(work)
    assert late_s >= worked_s >= 0.15


async def test_the_clock_rests_while_nobody_is_connected(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "_SWEEP_S", 0.05)
    daemon = await serve()
    strikes: list[float] = []
    histogram = daemon.state.metrics._histograms[LOOP_LAG]
    monkeypatch.setattr(histogram, "observe", strikes.append)
    assert "llmd_event_loop_lag_seconds_count" in await daemon.metrics()
    await daemon.http.close()
    own: list[float] = []
    clock = LoopLag(asyncio.get_running_loop(), lambda late_s, _: own.append(late_s))
    clock.start()
    async with asyncio.timeout(SETTLE_S):
        n_strikes, n_own = -1, 0
        while n_strikes != len(strikes) or len(own) < n_own + 3:  # the daemon's timer would tick as often
            if n_strikes != len(strikes):
                n_strikes, n_own = len(strikes), len(own)
            await asyncio.sleep(0.01)
    clock.stop()
