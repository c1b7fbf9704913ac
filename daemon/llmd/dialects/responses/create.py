"""POST /v1/responses, and how many tokens its input has: POST /v1/responses/input_tokens."""

from __future__ import annotations

import asyncio
from functools import partial

from aiohttp import web

from ...core.asked import Asked
from ...http import body
from ...http.answer import answer, sender_of
from ...http.body import in_time, respond
from ...http.context import FACTS, STATE
from ...http.writer import Writing
from ...pipeline.prompt import prepared
from ...pipeline.truncation import fitting
from .reader import ResponseAsked, response_of
from .store import STORE, StoredResponse
from .wire import InputTokens, ResponseRequest
from .writer import Keep, ResponseWriter


async def create_response(request: web.Request) -> web.StreamResponse:
    return await answer(request, _read)


async def count_input_tokens(request: web.Request) -> web.Response:
    """Counts the tokens of the prompt, even if it does not fit the context."""
    served, sender = request.app[STATE].served, sender_of(request)
    async with in_time(request):
        wanted = await _fitting(request, await _asked(request))
        found = await prepared(served, wanted, sender, is_look=True, has_to_fit=False)
    return respond(InputTokens(input_tokens=found.prompt.n_tokens))


async def _asked(request: web.Request) -> ResponseAsked:
    headers, store, owner = request.headers.items(), request.app[STORE], request[FACTS].caller.owner
    asked = await body.read_as(request, ResponseRequest, lambda wanted: response_of(wanted, headers, store, owner))
    request[FACTS].n_stored_bytes = asked.n_stored_bytes
    return asked


async def _fitting(request: web.Request, asked: ResponseAsked) -> Asked:
    """Truncates the conversation if it may and has to be."""
    if asked.response.truncation != "auto":
        return asked.asked
    return await fitting(request.app[STATE].served, asked.asked, sender_of(request))


async def _read(request: web.Request) -> tuple[Asked, Writing]:
    asked, store, owner = await _asked(request), request.app[STORE], request[FACTS].caller.owner
    continued = store.find(owner, asked.response.previous_response_id or "")
    if continued is not None:
        store.use(continued)
    return await _fitting(request, asked), partial(ResponseWriter, asked=asked, keep=_keep(request, asked))


def _keep(request: web.Request, asked: ResponseAsked) -> Keep | None:
    state, store, owner = request.app[STATE], request.app[STORE], request[FACTS].caller.owner
    if not asked.response.store:
        return None

    loop = asyncio.get_running_loop()

    def keep(id: str, told: bytes) -> None:
        """A text thread writes some answers, and only the event loop may change the store. It does so before it sends
        the answer."""
        response = StoredResponse(id, owner, asked.asked.key.id, told, asked.input, asked.before)
        loop.call_soon_threadsafe(store.keep, response, state.n_owners)

    return keep
