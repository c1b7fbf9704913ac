"""Sends the answers to one request as a stream, part by part (core/parts.py). The dialect's writer turns the parts into
bytes. The timers of watches.py keep the stream alive, and cancel it if its client does not read.
"""

from __future__ import annotations

import asyncio
import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from functools import partial

from aiohttp import web

from ..core.errors import ApiError
from ..core.parts import Failed, Part
from ..engine.generation import CancelReason
from ..pipeline.answering import Answering
from ..process.logs import fields
from .connection import unread_s
from .context import FACTS, STATE, State
from .framing import EVENTS
from .watches import KeepAlive, SlowReader

log = logging.getLogger("llmd.http")


class Writer(ABC):
    """Turns the answers to one request into bytes of a dialect. If the answer is not streamed, only `complete` is
    called. Otherwise `opening` is called first, `events` whenever parts arrive, and `ending` last.
    """

    framing = EVENTS
    """Whether the stream consists of server-sent events or of lines."""

    @abstractmethod
    def complete(self, parts: Sequence[Part]) -> bytes:
        """Returns the body of an answer that is not streamed, as JSON. `parts` has all parts, and none of them is
        Failed.
        """

    def opening(self) -> bytes:
        """Returns the bytes at the beginning of the stream, before those of the first part."""
        return b""

    @abstractmethod
    def events(self, parts: Sequence[Part]) -> bytes:
        """Returns the events that report these parts. If `parts` is empty, returns an event that keeps the stream
        alive, or b"" to send the `keep_alive` bytes of the framing instead.
        """

    def ending(self) -> bytes:
        """Returns the bytes at the end of the stream."""
        return b""


Writing = Callable[[State], Writer]
"""Type of the functions that make the writer of an answer. Called just before the first byte is written."""


class Stream:
    """One stream. `run` sends it from the HTTP headers to the end. The event loop owns this object."""

    def __init__(self, request: web.Request, answering: Answering, writer: Writer, headers: dict[str, str]) -> None:
        self._request = request
        self._answering = answering
        self._writer = writer
        self._metrics = request.app[STATE].metrics
        self._response = request[FACTS].begun or web.StreamResponse(headers={**writer.framing.headers(), **headers})
        self.n_writes = 0
        """Number of completed writes to the connection."""
        self.is_writing = False
        """True while a write waits until the client reads."""

    async def run(self) -> web.StreamResponse:
        config, loop = self._request.app[STATE].config, asyncio.get_running_loop()
        watches = (
            KeepAlive(loop, self, config.keepalive_interval, self._answering.nudge),
            SlowReader(loop, partial(unread_s, self._request), config.slow_reader_timeout, self._drop),
        )
        self._metrics.streams_open += 1
        try:
            await self._response.prepare(self._request)
            await self._deliver()
            await self._response.write_eof()
        except ConnectionError:
            self._answering.cancel(CancelReason.CLIENT_GONE)
        except Exception:
            await self._fail()
        finally:
            for watch in watches:
                watch.stop()
            self._metrics.streams_open -= 1
        return self._response

    async def _deliver(self) -> None:
        answering, writer = self._answering, self._writer
        opening = writer.opening()
        if opening:
            await self._write(opening)
        while True:
            parts = await answering.parts()
            if answering.is_over:
                break
            # Some parts make no bytes. In Ollama's dialect, for example, a tool call is sent only when it is complete.
            is_nudged, answering.is_nudged = answering.is_nudged, False
            data = writer.events(parts) if parts or is_nudged else b""
            if data or is_nudged:
                await self._write(data or writer.framing.keep_alive)
        if answering.error is not None:
            self._request[FACTS].error = answering.error
        await self._write(writer.events(parts) + writer.ending())

    async def _write(self, data: bytes) -> None:
        self.is_writing = True
        await self._response.write(data)
        self.is_writing = False
        self.n_writes += 1
        self._metrics.stream_bytes += len(data)

    async def _fail(self) -> None:
        """Reports an unexpected exception as an event of the stream. The headers of the stream have been sent, so the
        answer can no longer have an error status.
        """
        log.exception("a stream failed because of an error in llmd", extra=fields(path=self._request.path))
        error = ApiError("internal_error")
        self._request[FACTS].error = error
        try:
            await self._write(self._writer.events([Failed(0, error)]))
            await self._response.write_eof()
        except Exception:  # the failed code can be the writer itself
            self._abort()

    def _drop(self) -> None:
        self._answering.cancel(CancelReason.SLOW_READER)
        self._request[FACTS].error = ApiError(CancelReason.SLOW_READER)
        self._abort()

    def _abort(self) -> None:
        if self._request.transport is not None:
            self._request.transport.abort()
