"""--request-timeout counts from the arrival of a request: here until its generation begins, then in answer.py."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from aiohttp import web

from ..errors import ApiError
from .context import FACTS, STATE


def deadline_of(request: web.Request) -> float | None:
    """Time of the event loop; None: there is no end."""
    seconds = request.app[STATE].config.request_timeout
    return request[FACTS].came_at + seconds if seconds else None


@asynccontextmanager
async def in_time(request: web.Request) -> AsyncIterator[None]:
    """Reading, rendering and tokenizing. Work that waits for a text thread is taken back when time is up."""
    scope = asyncio.timeout_at(deadline_of(request))
    try:
        async with scope:
            yield
    except TimeoutError:
        if scope.expired():
            raise ApiError("deadline_exceeded") from None
        raise
