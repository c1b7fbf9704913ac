"""The timers of the event loop. Each stream has a KeepAlive and a SlowReader. Both have an interval, and check the
stream four times per interval until they are stopped. LoopLag measures the event loop itself.

KeepAlive sends bytes in a stream that was silent for --keepalive-interval. Proxies and clients would close silent
streams. SlowReader closes a stream whose client reads nothing for --slow-reader-timeout. Before that, the generation of
such a stream is paused (engine/generation.py). If an answer is not streamed, connection.py limits how long its client
may read nothing.
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
        """Calls `strike` if nothing has happened for `interval_s`. `idle_s` is called with the time of the event loop,
        and returns for how many seconds nothing has happened.
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
        """Returns for how many seconds nothing was written to the stream. After `interval_s`, the count begins again at
        0, because KeepAlive then writes bytes.
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
        """Calls `drop` once if the client has read nothing for `timeout_s`. `unread_s` is called with the time of the
        event loop, and returns for how many seconds the client has read nothing.
        """

        def drop_once() -> None:
            self.stop()
            drop()

        super().__init__(loop, timeout_s, unread_s, drop_once)


# --- the event loop ---------------------------------------------------------------------------------------------------


class LoopLag:
    """Measures how late the event loop is, with a timer that is due every LOOP_CLOCK_S. When the timer fires, it
    reports how late it was in seconds, and for how many of these seconds the event loop used the processor. In the
    other seconds, the event loop waited for a processor, or inside a blocking call. Each measurement costs a few
    microseconds. The timer is stopped while no client is connected, so that an idle daemon sleeps.
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
