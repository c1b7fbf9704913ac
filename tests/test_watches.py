"""A stream without new text gets a comment, and a stream that its client does not read is closed. The test moves the
clock.
"""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Callable
from typing import Any, cast

from llmd.http.stream import Stream
from llmd.http.watches import KeepAlive, SlowReader


class Clock:
    """The part of an event loop that a watch uses, with a time that the test sets."""

    def __init__(self) -> None:
        self.now = 0.0
        self._timers: list[tuple[float, int, Callable[[], None]]] = []

    def time(self) -> float:
        return self.now

    def call_later(self, seconds: float, call: Callable[[], None]) -> asyncio.TimerHandle:
        timer = (self.now + seconds, len(self._timers), call)
        heapq.heappush(self._timers, timer)
        return cast(asyncio.TimerHandle, Timer(lambda: self._timers.remove(timer)))

    def move(self, seconds: float) -> None:
        end = self.now + seconds
        while self._timers and self._timers[0][0] <= end:
            self.now, _, call = heapq.heappop(self._timers)
            call()
        self.now = end


class Timer:
    def __init__(self, cancel: Callable[[], None]) -> None:
        self.cancel = cancel


class Written:
    """The part of a stream that a watch uses."""

    n_writes = 0
    is_writing = False


def watch(seconds: float) -> tuple[Clock, Written, Any, list[float]]:
    clock, stream, struck = Clock(), Written(), list[float]()
    one = KeepAlive(
        cast(asyncio.AbstractEventLoop, clock), cast(Stream, stream), seconds, lambda: struck.append(clock.now)
    )
    return clock, stream, one, struck


def test_a_silent_stream_speaks_at_each_interval() -> None:
    clock, stream, _, spoken = watch(8.0)
    for _ in range(10):
        clock.move(3.0)
        stream.n_writes += 1
    assert spoken == []
    clock.move(25.0)
    assert spoken == [40.0, 48.0], "counted from when the last write was seen"


def test_a_stream_that_writes_is_not_spoken_for() -> None:
    clock, stream, watching, spoken = watch(8.0)
    stream.is_writing = True
    clock.move(100.0)
    assert spoken == []
    stream.is_writing = False
    watching.stop()
    clock.move(100.0)
    assert spoken == []


def test_a_client_that_takes_nothing_is_dropped_once() -> None:
    clock, dropped = Clock(), list[float]()
    stuck_since = [float("inf")]
    SlowReader(
        cast(asyncio.AbstractEventLoop, clock),
        lambda now: max(now - stuck_since[0], 0.0),
        8.0,
        lambda: dropped.append(clock.now),
    )
    clock.move(99.0)
    stuck_since[0] = 99.0
    clock.move(7.0)
    assert dropped == []
    stuck_since[0] = 106.0  # the client has read something
    clock.move(100.0)
    assert dropped == [114.0], "once"


def test_a_client_that_is_no_longer_watched_is_not_dropped() -> None:
    clock, dropped = Clock(), list[float]()
    loop = cast(asyncio.AbstractEventLoop, clock)
    SlowReader(loop, lambda now: now, 8.0, lambda: dropped.append(clock.now)).stop()
    clock.move(100.0)
    assert dropped == []
