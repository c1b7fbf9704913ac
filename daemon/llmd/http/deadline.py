"""--request-timeout counts from the arrival of a request: here until its generation begins, then in answer.py."""

from __future__ import annotations

import asyncio
from types import TracebackType

from aiohttp import web

from ..core.errors import ApiError
from .context import FACTS, STATE


def deadline_of(request: web.Request) -> float | None:
    """Time of the event loop; None: there is no end."""
    seconds = request.app[STATE].config.request_timeout
    return request[FACTS].came_at + seconds if seconds else None


class in_time:  # noqa: N801  # used as a statement, like asyncio.timeout
    """Reading, rendering and tokenizing. Work that waits for a text thread is taken back when time is up."""

    def __init__(self, request: web.Request) -> None:
        deadline = deadline_of(request)
        self._scope = asyncio.timeout_at(deadline) if deadline is not None else None

    async def __aenter__(self) -> None:
        if self._scope is not None:
            await self._scope.__aenter__()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._scope is None:
            return
        try:
            await self._scope.__aexit__(kind, error, trace)
        except TimeoutError:
            raise ApiError("deadline_exceeded") from None
