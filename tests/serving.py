"""A daemon in the process of the test: the real application, on real sockets, with a simulated model."""

from __future__ import annotations

import asyncio
import io
import json
import os
import re
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import aiohttp
from aiohttp import web

from llmd.app import create_app, runner_of
from llmd.engine.native import COUNTERS
from llmd.http.access import keys_of
from llmd.http.context import OPENING, STATE, State
from llmd.process.config_table import Config
from llmd.routes import ENDPOINTS

if TYPE_CHECKING:
    from llmd.http.traces import Traces

Json = dict[str, Any]

SETTLE_S = 30.0
"""Deadline for events that must happen. No test waits for this long if it passes."""


@dataclass
class Answer:
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Json:
        found = json.loads(self.body)
        assert isinstance(found, dict)
        return found

    @property
    def error(self) -> Json:
        error = self.json["error"]
        assert isinstance(error, dict)
        return error

    @property
    def code(self) -> str:
        """The code of an error, whatever its envelope."""
        error = self.json["error"]
        return str(error["code"] if isinstance(error, dict) else self.json["code"])


@dataclass
class Events:
    """A parsed event stream."""

    chunks: list[Json] = field(default_factory=list)
    comments: int = 0
    done: bool = False

    @property
    def text(self) -> str:
        choices = [choice for chunk in self.chunks for choice in chunk.get("choices", [])]
        return "".join(choice.get("text", "") or choice.get("delta", {}).get("content", "") for choice in choices)

    @property
    def finish_reasons(self) -> list[str]:
        choices = [choice for chunk in self.chunks for choice in chunk.get("choices", [])]
        return [choice["finish_reason"] for choice in choices if choice["finish_reason"] is not None]

    @property
    def session(self) -> Json:
        return next(chunk["session"] for chunk in self.chunks if "session" in chunk)

    @property
    def error(self) -> Json | None:
        return next((chunk["error"] for chunk in self.chunks if "error" in chunk), None)


def parse_events(body: bytes) -> Events:
    """Parses an event stream. Checks that it has only data lines and comments, each followed by an empty line, and
    nothing after [DONE].
    """
    events = Events()
    assert body.endswith(b"\n\n")
    for block in body.decode("utf-8").removesuffix("\n\n").split("\n\n"):
        assert not events.done, "something came after [DONE]"
        if block.startswith(":"):
            events.comments += 1
            continue
        assert block.startswith("data: ") and "\n" not in block
        data = block.removeprefix("data: ")
        if data == "[DONE]":
            events.done = True
        else:
            events.chunks.append(json.loads(data))
    return events


def chat(text: str = "hello", **fields: Any) -> Json:
    """Returns a chat request for exactly eight tokens. `fields` are other members, which can change the length."""
    return {"messages": [{"role": "user", "content": text}], "max_tokens": 8, "ignore_eos": True, **fields}


UNREADY = {path for row in ENDPOINTS if row.unready for path in row.spellings}
"""Paths whose answer with status 503 is not an error of llmd."""


def documented_codes(method: str, path: str) -> frozenset[str] | None:
    """Returns the error codes that /openapi.json allows for an endpoint, or None if the endpoint does not exist."""
    bare = path.split("?")[0]
    for row in ENDPOINTS:
        patterns = (re.sub(r"{\w+}", ".+" if row.id_spans_slashes else "[^/]+", spelling) for spelling in row.spellings)
        if row.method == method and any(re.fullmatch(pattern, bare) for pattern in patterns):
            return row.codes
    return None


def environment_without_options() -> dict[str, str]:
    """Returns the environment for a new process: without llmd's options, but with the build of libllm that the tests
    use, which need not be the default one.
    """
    return {
        name: value
        for name, value in os.environ.items()
        if not name.startswith("LLMD_") or name == "LLMD_LIBLLM_VARIANT"
    }


class Daemon:
    """A served application, with clients that send requests to it."""

    def __init__(self, app: web.Application, url: str, config: Config) -> None:
        self.app = app
        self.state: State = app[STATE]
        self.url = url
        self.config = config
        self.http = aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0))
        self.local = aiohttp.ClientSession(connector=aiohttp.UnixConnector(str(config.socket)))

    async def ask(self, method: str, path: str, body: Json | bytes | io.BytesIO | None = None, **kwargs: Any) -> Answer:
        """Sends a request over TCP, or over the unix socket if `local` is true."""
        client, base = (self.local, "http://llmd") if kwargs.pop("local", False) else (self.http, self.url)
        data = json.dumps(body).encode() if isinstance(body, dict) else body
        async with client.request(method, base + path, data=data, **kwargs) as response:
            answer = Answer(response.status, dict(response.headers), await response.read())
        codes = documented_codes(method, path)
        if answer.status >= 400 and codes is not None and path not in UNREADY:
            assert answer.code in codes, "this refusal is not documented for this endpoint"
        return answer

    async def chat(self, text: str = "hello", **fields: Any) -> Json:
        answer = await self.ask("POST", "/v1/chat/completions", chat(text, **fields))
        assert answer.status == 200, answer.body
        return answer.json

    async def refused(self, body: Json, path: str = "/v1/chat/completions") -> Answer:
        answer = await self.ask("POST", path, body)
        assert answer.status >= 400, answer.body
        assert set(answer.error) == {"message", "type", "code", "param"}
        return answer

    async def stream(self, body: Json, path: str = "/v1/chat/completions") -> Events:
        answer = await self.ask("POST", path, {**body, "stream": True})
        assert answer.status == 200, answer.body
        assert answer.headers["Content-Type"] == "text/event-stream"
        return parse_events(answer.body)

    @asynccontextmanager
    async def streaming(self, body: Json) -> AsyncIterator[aiohttp.ClientResponse]:
        """Opens a stream, and waits for its first text."""
        data = json.dumps({**body, "stream": True})
        async with self.http.post(self.url + "/v1/chat/completions", data=data) as response:
            assert response.status == 200, await response.text()
            while b'"content":""' in await response.content.readuntil(b"\n\n"):
                pass
            yield response

    def counter(self, name: str) -> int:
        return self.state.engine.session_table.counters()[name]

    async def idle(self) -> None:
        """Waits until the engine has no live generation."""
        async with asyncio.timeout(SETTLE_S):
            await self.state.engine.idle()

    async def metrics(self) -> dict[str, float]:
        answer = await self.ask("GET", "/metrics")
        lines = [line for line in answer.body.decode().splitlines() if not line.startswith("#")]
        return {name: float(value) for name, value in (line.rsplit(" ", 1) for line in lines)}

    async def close(self) -> None:
        await self.http.close()
        await self.local.close()


def config_of(directory: Path, **overrides: Any) -> Config:
    values: Json = {
        "model": "sim:dense",
        "port": 0,
        "socket": directory / "llmd.sock",
        "state_dir": directory / "state",
        "log_level": "debug",
    }
    return Config(**{**values, **overrides})


@asynccontextmanager
async def serving(config: Config, *, is_loaded: bool = True) -> AsyncIterator[Daemon]:
    """Serves on a free port and on the unix socket. At the end, checks that every request has ended exactly once. If
    `is_loaded` is true, waits until the model is loaded; otherwise the test must wait for that.
    """
    if config.state_dir is not None:
        config.state_dir.mkdir(exist_ok=True)
    app = create_app(config, keys_of(config.api_key_file, config.state_dir), traces=_traces(config))
    runner = runner_of(app)
    await runner.setup()
    try:
        if is_loaded:
            await app[OPENING]
        listener = socket.create_server(("127.0.0.1", 0))
        await web.SockSite(runner, listener).start()
        await web.UnixSite(runner, config.socket).start()
        daemon = Daemon(app, f"http://127.0.0.1:{listener.getsockname()[1]}", config)
        try:
            yield daemon
        finally:
            await daemon.close()
        await daemon.idle()
        await assert_all_ended(daemon)
    finally:
        await runner.cleanup()


def _traces(config: Config) -> Traces | None:
    if not config.otel_endpoint:
        return None
    from llmd.http.traces import Traces  # the environment of the page's tests does not have the library

    return Traces(config.otel_endpoint)


def _n_finished(daemon: Daemon) -> int:
    return sum(daemon.counter(c.name) for c in COUNTERS if c.name.startswith("finished_"))


async def assert_all_ended(daemon: Daemon) -> None:
    rendered = daemon.state.metrics.render(daemon.state.engine, daemon.state.answers, True).decode().splitlines()
    heard = sum(int(float(line.rpartition(" ")[2])) for line in rendered if line.startswith("llmd_requests_total{"))
    async with asyncio.timeout(SETTLE_S):  # the decode thread updates its counters later
        while _n_finished(daemon) < heard:  # noqa: ASYNC110
            await asyncio.sleep(0.001)
    assert _n_finished(daemon) == heard, "the engine ended another number of requests than the daemon heard of"
    assert daemon.state.engine.n_live == 0
    assert daemon.state.metrics.streams_open == 0
