"""Timers, owned by the event loop. KeepAlive and SlowReader watch one stream each: they check the stream four times per
interval, until they are stopped. LoopLag measures the event loop itself.

KeepAlive sends bytes in a stream that was silent for --keepalive-interval, because proxies and clients close silent
streams. SlowReader closes a stream whose client reads nothing for --slow-reader-timeout; such a stream's generation was
paused before (engine/generation.py). A client that does not read an answer without a stream has another limit
(connection.py).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from ..core import limits

if TYPE_CHECKING:
    from .stream import Stream

_LOOKS = 4


class _Watch:
    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        interval_s: float,
        idle_s: Callable[[float], float],
        strike: Callable[[], None],
    ) -> None:
        """`idle_s` is called with a time of the event loop, and returns the number of seconds for which nothing has
        happened until then.
        """
        self._loop = loop
        self._interval_s = interval_s
        self._idle_s = idle_s
        self._strike = strike
        self._timer = loop.call_later(interval_s / _LOOKS, self._look)

    def stop(self) -> None:
        self._timer.cancel()

    def _look(self) -> None:
        self._timer = self._loop.call_later(self._interval_s / _LOOKS, self._look)
        if self._idle_s(self._loop.time()) >= self._interval_s:
            self._strike()


class KeepAlive(_Watch):
    def __init__(
        self, loop: asyncio.AbstractEventLoop, stream: Stream, interval_s: float, speak: Callable[[], None]
    ) -> None:
        super().__init__(loop, interval_s, self._silent_s, speak)
        self._stream = stream
        self._n_writes_seen = 0
        self._silent_since = loop.time()

    def _silent_s(self, now: float) -> float:
        """Returns the number of seconds for which the stream has been silent. The count begins again when the timer has
        sent bytes.
        """
        stream, silent_s = self._stream, now - self._silent_since
        if stream.is_writing or stream.n_writes != self._n_writes_seen:
            self._n_writes_seen, silent_s = stream.n_writes, 0.0
        if silent_s == 0.0 or silent_s >= self._interval_s:
            self._silent_since = now
        return silent_s


class SlowReader(_Watch):
    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        unread_s: Callable[[float], float],
        timeout_s: float,
        drop: Callable[[], None],
    ) -> None:
        """`unread_s` is called with a time of the event loop, and returns the number of seconds for which the client
        has read nothing until then.
        """

        def drop_once() -> None:
            self.stop()
            drop()

        super().__init__(loop, timeout_s, unread_s, drop_once)


# --- the event loop ---------------------------------------------------------------------------------------------------


class LoopLag:
    """Measures the event loop with a timer. For each tick, reports by how many seconds the tick was late, and for how
    many of these seconds the event loop used the processor. In the other seconds the loop waited for a processor, or in
    a blocking call. A tick costs a few microseconds. The timer is stopped while no client is connected, so that an idle
    daemon sleeps.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, observe: Callable[[float, float], None]) -> None:
        self._loop = loop
        self._observe = observe
        self._timer: asyncio.TimerHandle | None = None
        self._due = 0.0
        self._worked_s = 0.0

    def start(self) -> None:
        if self._timer is None:
            self._wind()

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _wind(self) -> None:
        self._due = self._loop.time() + limits.LOOP_CLOCK_S
        self._worked_s = time.thread_time()
        self._timer = self._loop.call_at(self._due, self._strike)

    def _strike(self) -> None:
        late_s = max(self._loop.time() - self._due, 0.0)
        self._observe(late_s, min(late_s, time.thread_time() - self._worked_s))
        self._wind()
