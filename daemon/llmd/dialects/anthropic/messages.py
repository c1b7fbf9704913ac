"""POST /v1/messages and POST /v1/messages/count_tokens."""

from __future__ import annotations

from functools import partial

from aiohttp import web

from ...core.generation_request import ChatPrompt
from ...core.session_key import Session
from ...http.answer import Asking, answers, render_only
from ...http.body import in_time, respond
from .reader import conversation_of, request_of, session_of
from .wire import CountTokensRequest, MessagesRequest, TokenCount
from .writer import MessageWriter


@answers(MessagesRequest)
def create_message(body: MessagesRequest, request: web.Request) -> Asking:
    generation_request = request_of(body, request.headers.items())
    n_tokens_max, reports = generation_request.max_tokens, bool(body.return_progress)
    return generation_request, partial(MessageWriter, n_tokens_max=n_tokens_max, reports_progress=reports)


async def count_message_tokens(request: web.Request) -> web.Response:
    """Counts the tokens of a prompt, even if the prompt does not fit the context."""
    headers = request.headers.items()

    def read(body: CountTokensRequest) -> tuple[Session, ChatPrompt]:
        return session_of(body, headers), conversation_of(body)

    async with in_time(request):
        return respond(TokenCount((await render_only(request, CountTokensRequest, read, has_to_fit=False)).n_tokens))
