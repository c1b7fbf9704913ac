# ruff: noqa: ASYNC110 - conditions here have no event of their own
"""Clients that have closed their sending direction get their answers, and llmd notices if such a client has left."""

from __future__ import annotations

import asyncio
import json
import socket
import struct

import pytest

from llmd.core import limits
from llmd.http.connection import Connection
from tests.conftest import Serve
from tests.serving import Daemon, chat, parse_events
from tests.test_connections import HEALTH, connected, post, read_answer
from tests.test_delivery import outcomes
from tests.test_sessions import ENDLESS, SLOW


@pytest.mark.parametrize("local", [False, True], ids=["tcp", "unix"])
async def test_a_client_that_sends_no_more_gets_its_answers(serve: Serve, local: bool) -> None:
    daemon = await serve(model="sim:dense,step_us=2000")
    whole, stream = (json.dumps(chat(max_tokens=50, stream=is_stream)).encode() for is_stream in (False, True))
    async with connected(daemon, local) as (reader, writer):
        writer.write(post(whole) + post(stream) + HEALTH)
        writer.write_eof()
        answer = await read_answer(reader)
        assert json.loads(answer.body)["usage"]["completion_tokens"] == 50
        assert parse_events((await read_answer(reader)).body).done
        assert (await read_answer(reader)).status == 200
        assert await reader.read() == b""


@pytest.mark.parametrize("is_stream", [False, True], ids=["whole", "stream"])
@pytest.mark.parametrize("local", [False, True], ids=["tcp", "unix"])
async def test_a_client_of_http_1_0_that_sends_no_more_gets_its_answer(
    serve: Serve, made: list[Connection], local: bool, is_stream: bool
) -> None:
    daemon = await serve(model="sim:dense,step_us=2000")
    body = json.dumps(chat(max_tokens=50, stream=is_stream)).encode()
    async with connected(daemon, local) as (reader, writer):
        writer.write(post(body).replace(b"HTTP/1.1", b"HTTP/1.0"))
        writer.write_eof()
        head, _, answer = (await reader.read()).partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.0 200 ")
    if is_stream:
        assert parse_events(answer).done
    else:
        assert json.loads(answer)["usage"]["completion_tokens"] == 50


async def test_the_kernel_looks_after_a_client_that_cannot_be_asked(serve: Serve, made: list[Connection]) -> None:
    daemon = await serve(model=SLOW, ctx_size=200_000)
    async with connected(daemon) as (_, writer):
        writer.write(post(json.dumps(chat(**ENDLESS)).encode()).replace(b"HTTP/1.1", b"HTTP/1.0"))
        writer.write_eof()
        while daemon.state.engine.n_live == 0 or made[0]._probe_due == 0:
            await asyncio.sleep(0.001)
        pipe = made[0]._pipe
        assert pipe is not None
        kernel = pipe.get_extra_info("socket").getsockopt
        assert kernel(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE) == limits.PROBE_S
        assert kernel(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
        client = writer.get_extra_info("socket")
        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # closes with a reset
        writer.transport.abort()
        await daemon.idle()


async def test_a_client_that_sends_nonsense_and_no_more(daemon: Daemon) -> None:
    async with connected(daemon) as (reader, writer):
        writer.write(b"nonsense\r\n\r\n")
        writer.write_eof()
        assert (await read_answer(reader)).error["code"] == "invalid_http"
        assert await reader.read() == b""


@pytest.mark.parametrize(
    ("version", "is_stream", "local"),
    [
        ("HTTP/1.1", False, False),
        ("HTTP/1.1", False, True),
        ("HTTP/1.1", True, False),
        ("HTTP/1.1", True, True),
        ("HTTP/1.0", False, True),
        ("HTTP/1.0", True, False),
        ("HTTP/1.0", True, True),
    ],
)
async def test_a_client_that_goes_is_noticed(serve: Serve, version: str, is_stream: bool, local: bool) -> None:
    daemon = await serve(model=SLOW, ctx_size=200_000)
    body = json.dumps(chat(session_id="a", stream=is_stream, **ENDLESS)).encode()
    async with connected(daemon, local) as (_, writer):
        writer.write(post(body).replace(b"HTTP/1.1", version.encode()))
        while daemon.state.engine.n_live == 0:
            await asyncio.sleep(0.001)
        writer.close()
        await daemon.idle()
    assert await outcomes(daemon) == {"client_gone": 1}


async def test_a_client_that_half_closes_and_goes_later(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "PROBE_S", 0.1)
    daemon = await serve(model=SLOW, ctx_size=200_000)
    async with connected(daemon) as (reader, writer):
        writer.write(post(json.dumps(chat(**ENDLESS)).encode()))
        writer.write_eof()
        assert await reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
        while daemon.state.engine.n_live == 0:
            await asyncio.sleep(0)
        writer.transport.abort()
        await daemon.idle()
    assert await outcomes(daemon) == {"client_gone": 1}


async def test_a_client_that_goes_within_its_body(daemon: Daemon) -> None:
    async with connected(daemon) as (reader, writer):
        writer.write(post(b"{", length=100))
        writer.write_eof()
        assert await reader.read() == b""
