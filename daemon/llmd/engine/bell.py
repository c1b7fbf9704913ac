"""Wakes the one who waits for news of several generations. Owned by the event loop."""

from __future__ import annotations

import asyncio


class Bell:
    """Whoever waits looks first whether there is news: a bell that rings while nobody waits is not heard."""

    __slots__ = ("_create_future", "_waiter", "has_news")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._create_future = loop.create_future  # get_running_loop() costs a system call each time
        self._waiter: asyncio.Future[None] | None = None
        self.has_news = False
        """Something has come that nobody has taken; who takes it says so here."""

    def ring_news(self) -> None:
        self.has_news = True
        self.ring()

    def ring(self) -> None:
        """Without news."""
        waiter = self._waiter
        if waiter is not None:
            self._waiter = None
            if not waiter.done():
                waiter.set_result(None)

    def wait(self) -> asyncio.Future[None]:
        """To be awaited at once."""
        self._waiter = waiter = self._create_future()
        return waiter
