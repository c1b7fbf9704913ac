"""How long the event loop was kept from coming round: a clock on the loop, and how late it strikes."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from ..core import limits


class LoopLag:
    """Reports for each strike by how many seconds it was late, and how many of them the loop itself was at work: the
    others it waited, for a processor that somebody else had or in a call that blocks. Costs a few microseconds a
    strike; stopped while nobody is connected, so that an idle daemon sleeps."""

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
