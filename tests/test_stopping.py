# ruff: noqa: ASYNC110 - conditions here have no event of their own
"""A daemon that stops: unfinished requests get an error, and no answer is cut off without one."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable

import pytest

from llmd.app import stop_serving
from llmd.http.receive import BODIES
from tests.conftest import Serve
from tests.serving import Daemon, chat, parse_events
from tests.test_connections import HEALTH, Raw, Wire, connected, post, read_answer

PATHS = ("/v1/chat/completions", "/v1/completions", "/tokenize", "/apply-template", "/v1/sessions/a/pin")


async def refused(wire: Wire) -> Raw:
    """Returns the error that arrives before the connection is closed."""
    answer = await read_answer(wire[0])
    assert answer.status == 503 and answer.error["code"] == "shutting_down" and "retry-after" in answer.headers
    assert answer.headers["connection"] == "close"
    wire[1].write_eof()
    assert await wire[0].read() == b""
    return answer


async def until(condition: Callable[[], object]) -> None:
    while not condition():
        await asyncio.sleep(0.001)


@pytest.mark.parametrize("path", PATHS)
async def test_a_request_that_is_being_read_is_refused(serve: Serve, path: str) -> None:
    daemon = await serve()
    async with connected(daemon) as wire:
        wire[1].write(post(b'{"messages": [', length=1000, path=path))
        await until(lambda: daemon.app[BODIES].n_bytes)
        await stop_serving(daemon.state)
        await refused(wire)


async def test_a_request_that_is_being_rendered_is_refused(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    began = asyncio.Event()

    async def never(*_: object, **__: object) -> None:
        began.set()
        await asyncio.Event().wait()

    monkeypatch.setattr("llmd.pipeline.prompt.rendered", never)
    daemon = await serve()
    async with connected(daemon) as wire:
        wire[1].write(post(json.dumps(chat()).encode()))
        await began.wait()
        await stop_serving(daemon.state)
        await refused(wire)


@pytest.mark.parametrize("is_stream", [False, True], ids=["whole", "stream"])
async def test_what_runs_is_answered_and_what_follows_it_is_not_begun(serve: Serve, is_stream: bool) -> None:
    daemon = await serve(model="sim:dense,step_us=2000", shutdown_timeout=60.0)
    body = json.dumps(chat(max_tokens=100, stream=is_stream)).encode()
    async with connected(daemon) as wire, connected(daemon) as kept:
        kept[1].write(HEALTH)
        assert (await read_answer(kept[0])).status == 200
        wire[1].write(post(body) * 3)
        await until(lambda: daemon.state.engine.n_live)
        stopping = asyncio.create_task(stop_serving(daemon.state))
        await until(lambda: daemon.state.is_stopping)
        kept[1].write(post(body))
        await refused(kept)
        answer = await read_answer(wire[0])
        assert answer.status == 200
        if is_stream:
            assert parse_events(answer.body).finish_reasons == ["length"]
            await refused(wire)
        else:
            assert json.loads(answer.body)["usage"]["completion_tokens"] == 100
            assert answer.headers["connection"] == "close"
            assert await wire[0].read() == b""
        await stopping
    assert daemon.counter("finished_length_total") == 1


async def test_a_body_is_not_even_asked_for(daemon: Daemon) -> None:
    await stop_serving(daemon.state)
    async with connected(daemon) as wire:
        wire[1].write(post(b"", "Expect: 100-continue", length=1000))
        assert await wire[0].readuntil(b"\r\n") == b"HTTP/1.1 503 Service Unavailable\r\n"
