"""Bodies: a request's is read into its type, and a typed answer written.

Every body goes through libllm first (json_scan.py). A large one is read in a text thread.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

import msgspec
from aiohttp import web

from ..core import limits
from .context import FACTS, STATE
from .deadline import in_time
from .decode import decoded
from .parameters import check_refused, check_sizes
from .receive import received

T = TypeVar("T")
U = TypeVar("U")
Answer = msgspec.Struct | Sequence[msgspec.Struct]


async def read(request: web.Request, kind: type[T]) -> T:
    return await read_as(request, kind, lambda found: found)


async def read_as(request: web.Request, kind: type[T], make: Callable[[T], U]) -> U:
    """Decodes the body and calls `make` with it, in the same thread."""
    state, facts = request.app[STATE], request[FACTS]
    engine = state.engine
    async with in_time(request):
        data = await received(request, state.config.body_limit)
    facts.n_body_bytes = len(data)
    if not facts.is_large:
        return make(typed(engine.json.clean(data), kind))
    return await engine.in_thread(facts.caller.owner, len(data), lambda: make(typed(engine.json.clean(data), kind)))


def typed(document: bytes, kind: type[T]) -> T:
    """Decodes a document. One that is shorter than every limit of a member is decoded only once."""
    if len(document) > limits.FIELD_BYTES_MAX:
        check_sizes(kind, decoded(document, dict[str, msgspec.Raw]))
    found = decoded(document, kind)
    check_refused(found)
    return found


def respond(answer: Answer, status: int = 200) -> web.Response:
    return web.Response(status=status, body=msgspec.json.encode(answer), content_type="application/json")
