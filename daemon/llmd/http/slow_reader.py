"""A stream whose client takes nothing for --slow-reader-timeout is cut off. Before that its generation is paused
(engine/generation.py), and a connection with any other answer has a bound of its own (connection.py)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

_LOOKS = 4
"""Within the timeout."""


class SlowReader:
    """Looks at one client until it is stopped, or has dropped it. Owned by the event loop."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        unread_s: Callable[[float], float],
        timeout_s: float,
        drop: Callable[[], None],
    ) -> None:
        """`unread_s`: how long the client has taken nothing, at a time of the loop."""
        self._loop = loop
        self._unread_s = unread_s
        self._timeout_s = timeout_s
        self._drop = drop
        self._timer = loop.call_later(timeout_s / _LOOKS, self._look)

    def stop(self) -> None:
        self._timer.cancel()

    def _look(self) -> None:
        if self._unread_s(self._loop.time()) >= self._timeout_s:
            self._drop()
        else:
            self._timer = self._loop.call_later(self._timeout_s / _LOOKS, self._look)
