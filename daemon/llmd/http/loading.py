"""Lets requests wait while the model loads, instead of refusing them. So clients need not repeat a request that they
send right after llmd's start.

The body is received at once, and held until the model is loaded. If a streamed request waits for longer than
--keepalive-interval, its stream begins with comments about the loading. Proxies and clients would otherwise close the
connection. From then on, an error can only be reported as an event of the stream.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress

import msgspec
from aiohttp import web
from aiohttp.typedefs import Handler

from ..core.errors import ApiError
from ..engine.json_scan import body_scan, decoder_of
from ..engine.opening import EngineError
from ..process.logs import fields
from .body import in_time
from .context import ENVELOPES, FACTS, OPENING, PUBLIC, STATE, UNMATCHED, WAITING, Facts, State
from .framing import LINES, Framing
from .receive import BODIES, received

log = logging.getLogger("llmd.http")

_SCAN = body_scan(0)
"""Checks a body against the limits for the smallest context, because the model's context is not known yet."""


class _Streamed(msgspec.Struct):
    """A body of which only the member `stream` is decoded. This member says whether the answer is streamed. Errors in
    other members are ignored.
    """

    stream: msgspec.Raw = msgspec.Raw(b"null")


@web.middleware
async def wait_for_model(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Calls the handler when the model is loaded. While the model is loading, requests to the endpoints in WAITING
    wait, and requests to other endpoints are refused before their body is received. Public endpoints never wait.
    """
    state, facts = request.app[STATE], request[FACTS]
    if state.loaded_model is not None or facts.endpoint in request.app[PUBLIC] or facts.endpoint == UNMATCHED:
        return await handler(request)
    if facts.endpoint not in request.app[WAITING] or not state.config.load_wait:
        raise _still_loading(state)
    framing = request.app[WAITING][facts.endpoint]
    try:
        await _received_and_loaded(request, framing)
        answer = await handler(request)
    except ApiError as error:
        if facts.begun is None:
            raise
        facts.error = error
    except Exception:
        if facts.begun is None:
            raise
        log.exception("a request failed because of an error in llmd", extra=fields(path=request.path))
        facts.error = ApiError("internal_error")
    else:
        if facts.begun is None or answer is facts.begun:
            return answer
        return await _ended(facts.begun, _frame(answer, framing))  # the handler has made a complete answer
    return await _ended(facts.begun, request.app[ENVELOPES][facts.endpoint].event(facts.error))


def _still_loading(state: State) -> ApiError:
    return ApiError("model_loading", retry_after_s=state.loading.retry_after_s())


async def _received_and_loaded(request: web.Request, framing: Framing | None) -> None:
    """Receives the body, and waits until the model is loaded. Meanwhile the request counts as a live request, and its
    body as a body that is being received. So the limits on live requests and on bodies also apply to waiting requests.
    """
    state, facts = request.app[STATE], request[FACTS]
    with state.admission.entered(facts.caller.owner):
        async with in_time(request):
            facts.body = await received(request, state.config.body_limit)
            with request.app[BODIES].receiving(facts.caller.owner, state.n_owners) as share:
                share.take(len(facts.body))
                await _loaded(request, facts.body, framing)


async def _loaded(request: web.Request, body: bytes, framing: Framing | None) -> None:
    state, facts, opening = request.app[STATE], request[FACTS], request.app[OPENING]
    loop = asyncio.get_running_loop()
    latest = facts.came_at + state.config.load_wait
    is_streamed: bool | None = None
    while not opening.done():
        left_s = latest - loop.time()
        if left_s <= 0:
            raise _still_loading(state)
        await asyncio.wait([opening], timeout=min(state.config.keepalive_interval, left_s))
        if framing is None or opening.done():
            continue
        if is_streamed is None:
            is_streamed = await asyncio.to_thread(_is_streamed, body, framing)
        if is_streamed and not opening.done():
            with suppress(ConnectionError):  # the client has disconnected, and aiohttp cancels this task
                await _write_progress(request, facts, framing, state.loading.progress("the model")[1])
    if opening.cancelled():
        raise ApiError("shutting_down")
    if (error := opening.exception()) is not None:
        reason = f"The model could not be loaded: {error}" if isinstance(error, EngineError) else None
        raise ApiError("model_failed", reason) from error


def _is_streamed(body: bytes, framing: Framing) -> bool:
    """Returns whether the request asks for a stream. The other members of the body are not decoded yet. Returns False
    if the body is invalid. The client then gets an answer with an error status after the model is loaded.
    """
    try:
        stream = bytes(decoder_of(_Streamed).decode(_SCAN.clean(body)).stream)
    except (ApiError, msgspec.DecodeError):
        return False
    return stream != b"false" if framing is LINES else stream == b"true"  # Ollama's API streams by default


async def _write_progress(request: web.Request, facts: Facts, framing: Framing, status: str) -> None:
    if facts.begun is None:
        response = web.StreamResponse(headers=framing.headers())
        await response.prepare(request)
        facts.begun = response
    await facts.begun.write(framing.loading(status))


def _frame(answer: web.StreamResponse, framing: Framing | None) -> bytes:
    assert framing is not None and isinstance(answer, web.Response) and isinstance(answer.body, bytes)
    return framing.frame(answer.body)


async def _ended(stream: web.StreamResponse, data: bytes) -> web.StreamResponse:
    """Writes the last bytes of a stream that began while the model was loading."""
    with suppress(ConnectionError):
        await stream.write(data)
        await stream.write_eof()
    return stream
