"""Sends the parts of one request's answers as a stream. The dialect's writer turns the parts into bytes, and the timers
of watches.py watch the stream.
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
    """Turns the answers to one request into bytes. If the request is not streamed, only `complete` is called. Otherwise
    `opening` is called first, `events` whenever parts arrive, and `ending` last.
    """

    framing = EVENTS
    """Framing of the stream."""

    @abstractmethod
    def complete(self, parts: Sequence[Part]) -> bytes:
        """Returns all answers as JSON. None of the parts is Failed."""

    def opening(self) -> bytes:
        """Returns the bytes to write before the first part."""
        return b""

    @abstractmethod
    def events(self, parts: Sequence[Part]) -> bytes:
        """Returns the events of these parts. If `parts` is empty, returns an event that keeps the stream alive, or b""
        if the framing's bytes (`keep_alive`) should be sent instead.
        """

    def ending(self) -> bytes:
        """Returns the bytes to write after all parts."""
        return b""


Writing = Callable[[State], Writer]
"""Returns the writer of an answer. Called just before the first byte is written."""


class Stream:
    """One stream. `run` opens, writes and closes the stream. Owned by the event loop."""

    def __init__(self, request: web.Request, answering: Answering, writer: Writer, headers: dict[str, str]) -> None:
        self._request = request
        self._answering = answering
        self._writer = writer
        self._metrics = request.app[STATE].metrics
        self._response = web.StreamResponse(headers={**writer.framing.headers(), **headers})
        self.n_writes = 0
        """Number of completed writes."""
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
            # Parts do not always produce bytes: in Ollama's dialect, for example, a tool call is sent only when it is
            # complete.
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
        """Reports a defect of the daemon as an event of the stream. An error answer is no longer possible, because the
        head of the stream has been sent.
        """
        log.exception("a stream failed", extra=fields(path=self._request.path))
        error = ApiError("internal_error")
        self._request[FACTS].error = error
        try:
            await self._write(self._writer.events([Failed(0, error)]))
            await self._response.write_eof()
        except Exception:  # the writer itself can be the cause
            self._abort()

    def _drop(self) -> None:
        self._answering.cancel(CancelReason.SLOW_READER)
        self._request[FACTS].error = ApiError(CancelReason.SLOW_READER)
        self._abort()

    def _abort(self) -> None:
        if self._request.transport is not None:
            self._request.transport.abort()
