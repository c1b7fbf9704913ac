"""POST /v1/responses and /v1/responses/input_tokens, GET and DELETE /v1/responses/{id}, and GET
/v1/responses/{id}/input_items.
"""

from __future__ import annotations

import asyncio
from functools import partial

import msgspec
from aiohttp import web

from ...core import limits
from ...core.errors import ApiError, invalid_value, quoted, unsupported
from ...core.generation_request import GenerationRequest
from ...http import body
from ...http.answer import answer, sender_of
from ...http.body import in_time, respond
from ...http.context import FACTS, STATE
from ...http.stream import Writing
from ...pipeline.prompt import prepared
from ...pipeline.truncation import fitting
from .reader import ParsedRequest, response_of
from .store import STORE, StoredResponse, id_of
from .wire import InputItemList, InputTokens, ResponseDeleted, ResponseRequest
from .writer import Keep, ResponseWriter


async def create_response(request: web.Request) -> web.StreamResponse:
    return await answer(request, _read)


async def count_input_tokens(request: web.Request) -> web.Response:
    """Counts the tokens of the prompt, even if the prompt does not fit the context."""
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
    """Returns the generation request. If the conversation does not fit the context, and the request allows truncation,
    the first messages are left out.
    """
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

    def keep(id: str, body: bytes) -> None:
        """Stores a response. Called in a text thread or on the event loop. Only the event loop may change the store, so
        the change is scheduled there. The event loop makes the change before it sends the answer.
        """
        response = StoredResponse(id, owner, parsed.generation_request.key.id, body, parsed.input, parsed.before)
        loop.call_soon_threadsafe(store.keep, response, state.n_owners)

    return keep


# --- stored responses ------------------------------------------------------------------------------------------------


_ORDERS = ("asc", "desc")


async def show_response(request: web.Request) -> web.Response:
    if request.query.get("stream", "false").lower() not in ("false", "0"):
        raise unsupported("stream", "a stored response cannot be streamed again; leave out stream")
    return web.Response(body=_stored_response(request).body, content_type="application/json")


async def delete_response(request: web.Request) -> web.Response:
    found = _stored_response(request)
    request.app[STORE].drop(found.owner, found.id)
    return respond(ResponseDeleted(id=found.id))


async def list_input_items(request: web.Request) -> web.Response:
    found, order, limit = _stored_response(request), request.query.get("order", "desc"), _limit(request)
    if order not in _ORDERS:
        raise invalid_value("order", f"{quoted(order)} is not one of {', '.join(_ORDERS)}")
    items = found.input if order == "asc" else found.input[::-1]
    ids = [id_of(item) for item in items]
    start = _start(ids, request.query.get("after"))
    page, shown_ids = items[start : start + limit], ids[start : start + limit]
    return respond(
        InputItemList(
            data=[msgspec.Raw(item) for item in page],
            first_id=shown_ids[0] if shown_ids else None,
            last_id=shown_ids[-1] if shown_ids else None,
            has_more=start + limit < len(items),
        )
    )


def _stored_response(request: web.Request) -> StoredResponse:
    id, store = request.match_info["id"], request.app[STORE]
    found = store.find(request[FACTS].caller.owner, id)
    if found is None:
        raise ApiError("response_not_found", f"Response with id {quoted(id)} not found.", "id")
    store.use(found)
    return found


def _limit(request: web.Request) -> int:
    text, most = request.query.get("limit"), limits.RESPONSE_ITEMS_SHOWN_MAX
    if text is None:
        return limits.RESPONSE_ITEMS_SHOWN
    n = int(text) if text.isascii() and text.isdigit() and len(text) <= len(str(most)) else 0
    if not 1 <= n <= most:
        raise invalid_value("limit", f"{quoted(text)} is not a number from 1 to {most}")
    return n


def _start(ids: list[str], after: str | None) -> int:
    if after is None:
        return 0
    if after not in ids:
        raise invalid_value("after", f"the input has no item {quoted(after)}")
    return ids.index(after) + 1
