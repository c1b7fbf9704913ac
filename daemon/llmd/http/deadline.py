"""--request-timeout counts from the arrival of a request: `in_time` until it has begun, then `ends_in_time`."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import TracebackType

from aiohttp import web

from ..core.errors import ApiError
from ..engine.generation import CancelReason
from .context import FACTS, STATE


def deadline_of(request: web.Request) -> float | None:
    """Time of the event loop; None: there is no end."""
    seconds = request.app[STATE].config.request_timeout
    return request[FACTS].came_at + seconds if seconds else None


class in_time:  # noqa: N801  # used as a statement, like asyncio.timeout
    """Bounds reading, rendering and tokenizing by the deadline and by the daemon's stop. Work that waits for a text
    thread is taken back then."""

    def __init__(self, request: web.Request) -> None:
        self._state = request.app[STATE]
        self._scope = asyncio.timeout_at(deadline_of(request))
        self._is_stopped = False

    def stop(self) -> None:
        """The daemon stops."""
        if not self._scope.expired():
            self._is_stopped = True
            self._scope.reschedule(asyncio.get_running_loop().time())

    async def __aenter__(self) -> None:
        if self._state.is_stopping:
            raise ApiError("shutting_down")
        await self._scope.__aenter__()
        self._state.preparing.add(self)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._state.preparing.discard(self)
        try:
            await self._scope.__aexit__(kind, error, trace)
        except TimeoutError:
            raise ApiError("shutting_down" if self._is_stopped else "deadline_exceeded") from None


@contextmanager
def ends_in_time(request: web.Request, cancel: Callable[[CancelReason], None]) -> Iterator[None]:
    """Cancels a generation that has begun when its time is up; its end has the reason."""
    deadline = deadline_of(request)
    if deadline is None:
        yield
        return
    timer = asyncio.get_running_loop().call_at(deadline, cancel, CancelReason.DEADLINE)
    try:
        yield
    finally:
        timer.cancel()
