"""POST /v1/responses, and how many tokens its input has: POST /v1/responses/input_tokens."""

from __future__ import annotations

import asyncio
from functools import partial

from aiohttp import web

from ...core.generation_request import GenerationRequest
from ...http import body
from ...http.answer import answer, sender_of
from ...http.body import in_time, respond
from ...http.context import FACTS, STATE
from ...http.writer import Writing
from ...pipeline.prompt import prepared
from ...pipeline.truncation import fitting
from .reader import ParsedRequest, response_of
from .store import STORE, StoredResponse
from .wire import InputTokens, ResponseRequest
from .writer import Keep, ResponseWriter


async def create_response(request: web.Request) -> web.StreamResponse:
    return await answer(request, _read)


async def count_input_tokens(request: web.Request) -> web.Response:
    """Counts the tokens of the prompt, even if it does not fit the context."""
    services, sender = request.app[STATE].services, sender_of(request)
    async with in_time(request):
        generation_request = await _fitting(request, await _parsed(request))
        found = await prepared(services, generation_request, sender, is_dry_run=True, has_to_fit=False)
    return respond(InputTokens(input_tokens=found.prompt.n_tokens))


async def _parsed(request: web.Request) -> ParsedRequest:
    headers, store, owner = request.headers.items(), request.app[STORE], request[FACTS].caller.owner
    parsed = await body.read_as(
        request, ResponseRequest, lambda parsed_body: response_of(parsed_body, headers, store, owner)
    )
    request[FACTS].n_stored_bytes = parsed.n_stored_bytes
    return parsed


async def _fitting(request: web.Request, parsed: ParsedRequest) -> GenerationRequest:
    """Truncates the conversation if it may and has to be."""
    if parsed.response.truncation != "auto":
        return parsed.generation_request
    return await fitting(request.app[STATE].services, parsed.generation_request, sender_of(request))


async def _read(request: web.Request) -> tuple[GenerationRequest, Writing]:
    parsed, store, owner = await _parsed(request), request.app[STORE], request[FACTS].caller.owner
    continued = store.find(owner, parsed.response.previous_response_id or "")
    if continued is not None:
        store.use(continued)
    return await _fitting(request, parsed), partial(ResponseWriter, parsed=parsed, keep=_keep(request, parsed))


def _keep(request: web.Request, parsed: ParsedRequest) -> Keep | None:
    state, store, owner = request.app[STATE], request.app[STORE], request[FACTS].caller.owner
    if not parsed.response.store:
        return None

    loop = asyncio.get_running_loop()

    def keep(id: str, told: bytes) -> None:
        """A text thread writes some answers, and only the event loop may change the store. It does so before it sends
        the answer."""
        response = StoredResponse(id, owner, parsed.generation_request.key.id, told, parsed.input, parsed.before)
        loop.call_soon_threadsafe(store.keep, response, state.n_owners)

    return keep
