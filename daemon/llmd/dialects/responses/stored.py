"""GET and DELETE /v1/responses/{id}, and the items of its input."""

from __future__ import annotations

import msgspec
from aiohttp import web

from ...core import limits
from ...core.errors import ApiError, quoted
from ...http.body import respond
from ...http.context import FACTS
from .store import STORE, StoredResponse, id_of
from .wire import InputItemList, ResponseDeleted

_ORDERS = ("asc", "desc")


async def show_response(request: web.Request) -> web.Response:
    if request.query.get("stream", "false").lower() not in ("false", "0"):
        message = "stream: a stored response cannot be streamed again; leave out stream."
        raise ApiError("unsupported_parameter", message, "stream")
    return web.Response(body=_stored_response(request).body, content_type="application/json")


async def delete_response(request: web.Request) -> web.Response:
    found = _stored_response(request)
    request.app[STORE].drop(found.owner, found.id)
    return respond(ResponseDeleted(id=found.id))


async def list_input_items(request: web.Request) -> web.Response:
    found, order, limit = _stored_response(request), request.query.get("order", "desc"), _limit(request)
    if order not in _ORDERS:
        raise ApiError("invalid_value", f"order: {quoted(order)} is not one of {', '.join(_ORDERS)}.", "order")
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
        raise ApiError("invalid_value", f"limit: {quoted(text)} is not a number from 1 to {most}.", "limit")
    return n


def _start(ids: list[str], after: str | None) -> int:
    if after is None:
        return 0
    if after not in ids:
        raise ApiError("invalid_value", f"after: the input has no item {quoted(after)}.", "after")
    return ids.index(after) + 1
