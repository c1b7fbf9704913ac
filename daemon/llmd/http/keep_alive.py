"""A stream that has been silent for --keepalive-interval is sent something: proxies and clients give up silent ones."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .stream import Stream

_LOOKS = 4
"""Within the interval."""


class KeepAlive:
    """Looks at one stream until it is stopped. Owned by the event loop."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, stream: Stream, interval_s: float, speak: Callable[[], None]
    ) -> None:
        self._loop = loop
        self._stream = stream
        self._interval_s = interval_s
        self._speak = speak
        self._n_writes_seen = 0
        self._silent_since = loop.time()
        self._timer = loop.call_later(interval_s / _LOOKS, self._look)

    def stop(self) -> None:
        self._timer.cancel()

    def _look(self) -> None:
        now, stream = self._loop.time(), self._stream
        if stream.is_writing or stream.n_writes != self._n_writes_seen:
            self._n_writes_seen = stream.n_writes
            self._silent_since = now
        elif now - self._silent_since >= self._interval_s:
            self._silent_since = now
            self._speak()
        self._timer = self._loop.call_later(self._interval_s / _LOOKS, self._look)
