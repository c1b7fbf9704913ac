"""POST /v1/messages, and how many tokens its prompt would have: POST /v1/messages/count_tokens."""

from __future__ import annotations

from functools import partial

from aiohttp import web

from ...core.asked import Asked
from ...http import body
from ...http.answer import answer, reader, sender_of
from ...http.body import respond
from ...http.context import STATE
from ...http.deadline import in_time
from ...http.writer import Writing
from ...pipeline.prompt import rendered
from .reader import asked_of, conversation_of, session_of
from .wire import CountTokensRequest, MessagesRequest, TokenCount
from .writer import MessageWriter


def _message(wanted: MessagesRequest, request: web.Request) -> tuple[Asked, Writing]:
    asked = asked_of(wanted, request.headers.items())
    return asked, partial(MessageWriter, n_tokens_max=asked.max_tokens)


async def create_message(request: web.Request) -> web.StreamResponse:
    return await answer(request, reader(MessagesRequest, _message))


async def count_message_tokens(request: web.Request) -> web.Response:
    """Of a prompt that does not fit the context, too."""
    state, headers = request.app[STATE], request.headers.items()
    async with in_time(request):
        (key, parent), conversation = await body.read_as(
            request,
            CountTokensRequest,
            lambda wanted: (session_of(wanted, headers), conversation_of(wanted)),
        )
        sender = sender_of(request)
        found = await rendered(state.served, conversation, key, parent, sender, is_look=True, has_to_fit=False)
        return respond(TokenCount(found.prompt.n_tokens))
