"""Decodes the body of a request as the type that its endpoint declares. Encodes the body of a typed answer.

libllm checks the JSON of every body before it is decoded (json_scan.py). A large body is decoded in a text thread.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from typing import TypeVar

import msgspec
from aiohttp import web

from ..core import limits
from ..core.errors import ApiError
from ..engine.generation import CancelReason
from .context import FACTS, STATE
from .decode import decoded
from .parameters import check_refused, check_sizes
from .receive import received


def deadline_of(request: web.Request) -> float | None:
    """Returns the time (of the event loop) by which the request must be finished. Returns None if --request-timeout is
    not set.
    """
    seconds = request.app[STATE].config.request_timeout
    return request[FACTS].came_at + seconds if seconds else None


@asynccontextmanager
async def in_time(request: web.Request) -> AsyncIterator[None]:
    """Makes a context for the code that receives, renders or tokenizes a request, and limits how long this code may
    take. If the request's deadline passes, or the daemon stops, the code is cancelled and ApiError is raised. If a job
    of the code still waits for a text thread, the job is removed from the queue.
    """
    state, scope = request.app[STATE], asyncio.timeout_at(deadline_of(request))
    if state.is_stopping:
        raise ApiError("shutting_down")
    try:
        async with scope:
            state.preparing.add(scope)
            try:
                yield
            finally:
                state.preparing.discard(scope)
    except TimeoutError:
        if not scope.expired():
            raise
        # State.stop gives the scope another end than the deadline.
        is_stopped = scope.when() != deadline_of(request)
        raise ApiError("shutting_down" if is_stopped else "deadline_exceeded") from None


@contextmanager
def ends_in_time(request: web.Request, cancel: Callable[[CancelReason], None]) -> Iterator[None]:
    """Makes a context for the code that waits for a generation. If the request's deadline passes before this code has
    ended, calls `cancel`, which cancels the generation. The last event of the generation says that the deadline was the
    reason.
    """
    deadline = deadline_of(request)
    if deadline is None:
        yield
        return
    timer = asyncio.get_running_loop().call_at(deadline, cancel, CancelReason.DEADLINE)
    try:
        yield
    finally:
        timer.cancel()


# --- decoding and encoding --------------------------------------------------------------------------------------------


T = TypeVar("T")
U = TypeVar("U")
Answer = msgspec.Struct | Sequence[msgspec.Struct]


async def read(request: web.Request, kind: type[T]) -> T:
    return await read_as(request, kind, lambda found: found)


async def read_as(request: web.Request, kind: type[T], make: Callable[[T], U]) -> U:
    """Receives the body, decodes it as `kind`, calls `make` with the value, and returns the result of `make`. Decoding
    and `make` run in the same thread.
    """
    state, facts = request.app[STATE], request[FACTS]
    engine = state.engine
    async with in_time(request):
        data = await received(request, state.config.body_limit)
    facts.n_body_bytes = len(data)
    if not facts.is_large:
        return make(typed(engine.json.clean(data), kind))
    return await engine.in_thread(facts.caller.owner, len(data), lambda: make(typed(engine.json.clean(data), kind)))


def typed(document: bytes, kind: type[T]) -> T:
    """Decodes a JSON document as `kind`. Raises ApiError if a member exceeds its size limit, or is a refused parameter.
    Every size limit is at least FIELD_BYTES_MAX. So the sizes of members are checked only if the document is longer.
    """
    if len(document) > limits.FIELD_BYTES_MAX:
        check_sizes(kind, decoded(document, dict[str, msgspec.Raw]))
    found = decoded(document, kind)
    check_refused(found)
    return found


def respond(answer: Answer, status: int = 200) -> web.Response:
    return web.Response(status=status, body=msgspec.json.encode(answer), content_type="application/json")
