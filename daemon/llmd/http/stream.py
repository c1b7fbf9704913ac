"""Writes the parts of one request as a stream, with the writer of a dialect. The timers of watches.py watch the
stream."""

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
    """Writes the answers to one request: either `complete`, or `opening`, then `events` as parts arrive, then
    `ending`."""

    framing = EVENTS
    """Framing of the stream."""

    @abstractmethod
    def complete(self, parts: Sequence[Part]) -> bytes:
        """Writes all answers as JSON. None of the parts is Failed."""

    def opening(self) -> bytes:
        """Returns the bytes to write before the first part."""
        return b""

    @abstractmethod
    def events(self, parts: Sequence[Part]) -> bytes:
        """Writes the events of these parts. Without parts, returns an event that shows progress, or b"" to use that of
        the framing.
        """

    def ending(self) -> bytes:
        """Returns the bytes to write after all parts."""
        return b""


Writing = Callable[[State], Writer]
"""Returns the writer. Called when the first byte is about to be written."""


class Stream:
    """One stream. `run` is its whole life. Owned by the event loop."""

    def __init__(self, request: web.Request, answering: Answering, writer: Writer, headers: dict[str, str]) -> None:
        self._request = request
        self._answering = answering
        self._writer = writer
        self._metrics = request.app[STATE].metrics
        self._response = web.StreamResponse(headers={**writer.framing.headers(), **headers})
        self.n_writes = 0
        """Number of completed writes."""
        self.is_writing = False
        """A write waits for the client to read."""

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
            # Parts do not always produce bytes: Ollama's dialect sends a tool call when it is complete.
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
        """Reports a defect of the daemon in the stream: its head has been sent, so no error answer can follow."""
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
