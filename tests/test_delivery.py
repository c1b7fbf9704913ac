"""Clients that disconnect, stop reading or take too long, bodies that are too large, and the stop of the daemon."""

from __future__ import annotations

import asyncio
import json
import socket
from contextlib import suppress

import aiohttp
import pytest

from llmd.app import stop_serving
from llmd.core import limits
from llmd.dialects.openai.chat_writer import ChatWriter
from tests.conftest import Serve
from tests.serving import SETTLE_S, Daemon, chat, parse_events
from tests.test_sessions import ENDLESS, SLOW, running


async def outcomes(daemon: Daemon, path: str = "/chat/completions") -> dict[str, float]:
    """Returns the number of generations of this endpoint, by outcome."""
    prefix = f'llmd_requests_total{{endpoint="{path}",outcome="'
    found = (await daemon.metrics()).items()
    return {name.removeprefix(prefix).removesuffix('"}'): n for name, n in found if name.startswith(prefix)}


async def test_a_client_that_leaves_a_stream_cancels_it(serve: Serve) -> None:
    daemon = await serve(model=SLOW, ctx_size=200_000)
    async with daemon.streaming(chat(session_id="a", **ENDLESS)) as response:
        response.close()
    await daemon.idle()
    assert await outcomes(daemon) == {"client_gone": 1}
    assert (await daemon.ask("GET", "/v1/sessions/a")).json["state"] == "idle"


async def test_a_client_that_leaves_before_its_answer_cancels_it(serve: Serve) -> None:
    daemon = await serve(model=SLOW, ctx_size=200_000)
    asked = await running(daemon, "a")
    asked.cancel()
    await daemon.idle()
    assert await outcomes(daemon) == {"client_gone": 1}


async def test_leaving_after_the_end_is_no_abort(daemon: Daemon) -> None:
    """Some clients disconnect as soon as they have received [DONE]."""
    body = json.dumps(chat(stream=True)).encode()
    reader, writer = await asyncio.open_connection("127.0.0.1", int(daemon.url.rpartition(":")[2]))
    head = f"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n\r\n"
    writer.write(head.encode() + body)
    await reader.readuntil(b"[DONE]")
    writer.transport.abort()
    await daemon.idle()
    assert await outcomes(daemon) == {"length": 1}


async def slow_reader(daemon: Daemon) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Opens an endless stream and reads nothing. Uses the unix socket, because its buffers are small. If the machine is
    busy, the server joins many tokens into an event, and 100,000 tokens may fit into the buffers."""
    connection = socket.socket(socket.AF_UNIX)
    connection.setblocking(False)
    await asyncio.get_running_loop().sock_connect(connection, str(daemon.config.socket))
    reader, writer = await asyncio.open_unix_connection(sock=connection, limit=1024)
    body = json.dumps(chat(session_id="slow", stream=True, **ENDLESS | {"max_tokens": 900_000})).encode()
    writer.write(b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
    return reader, writer


async def test_a_reader_that_stops_is_dropped(serve: Serve) -> None:
    daemon = await serve(model="sim:dense,ctx=1000000,length=0", ctx_size=1_000_000, slow_reader_timeout=0.2)
    _, writer = await slow_reader(daemon)
    async with asyncio.timeout(SETTLE_S):
        while not (await outcomes(daemon)).get("slow_reader"):
            await daemon.chat(session_id="other")  # other clients are not affected
    writer.close()
    await daemon.idle()
    assert (await daemon.ask("GET", "/v1/sessions/slow")).json["state"] == "idle"


async def test_a_slow_reader_pauses_its_generation(serve: Serve) -> None:
    """The generation stops after a limited number of tokens, and continues when the client reads again."""
    daemon = await serve(model="sim:dense,ctx=1000000,length=0", ctx_size=1_000_000)
    reader, writer = await slow_reader(daemon)

    async def position() -> int:
        return int((await daemon.ask("GET", "/v1/sessions/slow")).json["tokens"])

    async def standing_still() -> int:
        before = -1
        while (now := await position()) != before or now == 0:
            before = now
            await daemon.chat(session_id="other", max_tokens=50)  # the slow one could advance in these steps
        return before

    async with asyncio.timeout(SETTLE_S):
        while (await daemon.ask("GET", "/v1/sessions/slow")).status != 200:
            pass
        paused_at = await standing_still()
        while await position() <= paused_at:
            await reader.read(65536)
    writer.transport.abort()
    await daemon.idle()


async def test_requests_have_a_deadline(serve: Serve) -> None:
    daemon = await serve(model=SLOW, ctx_size=200_000, request_timeout=0.1)
    answer = await daemon.refused(chat(**ENDLESS))
    assert answer.status == 408 and answer.error["code"] == "deadline_exceeded"
    events = await daemon.stream(chat(**ENDLESS))
    assert events.error is not None and events.error["code"] == "deadline_exceeded" and events.done
    assert await outcomes(daemon) == {"deadline_exceeded": 2}


async def test_large_bodies_are_refused(serve: Serve) -> None:
    daemon = await serve(body_limit=4096)
    answer = await daemon.refused(chat("x" * 5000))
    assert answer.status == 413 and answer.error["code"] == "request_too_large" and "4096" in answer.error["message"]


async def test_stopping_refuses_and_lets_finish(serve: Serve) -> None:
    daemon = await serve(model="sim:dense,step_us=1000", shutdown_timeout=60.0)
    async with daemon.streaming(chat(max_tokens=100, ignore_eos=True)) as response:
        stopping = asyncio.create_task(stop_serving(daemon.state))
        while not daemon.state.is_stopping:
            await daemon.ask("GET", "/health")
        refused = await daemon.refused(chat())
        assert refused.status == 503 and refused.error["code"] == "shutting_down" and "Retry-After" in refused.headers
        ready = await daemon.ask("GET", "/ready")
        assert ready.status == 503 and ready.json["status"] == "stopping"
        events = parse_events(b": first\n\n" + await response.read())
    await stopping
    assert events.error is None and events.finish_reasons == ["length"] and events.done


async def test_stopping_cancels_what_does_not_finish(serve: Serve) -> None:
    daemon = await serve(model=SLOW, ctx_size=200_000, shutdown_timeout=0.0)
    asked = await running(daemon, "a")
    await stop_serving(daemon.state)
    answer = await asked
    assert answer.status == 503 and answer.error["code"] == "shutting_down"


async def test_more_requests_than_the_engine_takes(serve: Serve) -> None:
    daemon = await serve(model=SLOW, ctx_size=200_000)
    asked = await running(daemon, "a")
    n_asked = limits.SCRATCH_QUEUE_MAX + 16
    prompt = {"prompt": [300], **ENDLESS}  # a token: a text would wait to be tokenized, in a queue with its own limit
    scratch = [asyncio.create_task(daemon.ask("POST", "/v1/completions", prompt)) for _ in range(n_asked)]
    refused = []
    for task in asyncio.as_completed(scratch):
        refused.append(await task)
        if len(refused) == 16 - daemon.config.scratch_sessions:
            break
    assert {answer.error["code"] for answer in refused} == {"queue_full"}
    for task in (asked, *scratch):
        task.cancel()
    await asyncio.gather(asked, *scratch, return_exceptions=True)
    await daemon.idle()


@pytest.mark.parametrize("broken", ["opening", "events", "ending"])
async def test_a_writer_that_fails_in_a_stream_ends_it(
    serve: Serve, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, broken: str
) -> None:
    """No second head is sent after the first, and the generation is cancelled."""

    def fail(*_: object) -> bytes:
        raise KeyError("of a writer")

    monkeypatch.setattr(ChatWriter, broken, fail)
    daemon = await serve()
    body, received = json.dumps(chat(stream=True, max_tokens=5)), b""
    async with daemon.http.post(daemon.url + "/v1/chat/completions", data=body) as response:
        with suppress(aiohttp.ClientPayloadError):  # raised if even the error could not be written
            async for chunk in response.content.iter_any():
                received += chunk
    assert response.status == 200 and b"HTTP/1.1" not in received
    if broken != "events":
        error = parse_events(received).error
        assert error is not None and error["code"] == "internal_error"
    await daemon.idle()
    assert "a stream failed" in caplog.text
    assert (await daemon.chat(max_tokens=1))["choices"][0]["finish_reason"] == "length"
