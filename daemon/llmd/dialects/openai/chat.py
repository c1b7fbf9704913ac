"""POST /v1/chat/completions, and the prompt it would make: POST /apply-template."""

from __future__ import annotations

from functools import partial

from aiohttp import web

from ...core.asked import Asked
from ...http import body
from ...http.answer import answer, sender_of
from ...http.body import respond
from ...http.context import FACTS, STATE
from ...http.deadline import in_time
from ...http.endpoints.wire.text import RenderedTemplate
from ...http.writer import Writing
from ...pipeline.prompt import rendered
from .chat_writer import ChatWriter
from .reader import chat_of, conversation_of, session_of, written_as
from .tools import custom_names, is_legacy
from .wire import ChatCompletionRequest


async def chat_completions(request: web.Request) -> web.StreamResponse:
    return await answer(request, _read)


async def _read(request: web.Request) -> tuple[Asked, Writing]:
    headers = request.headers.items()

    def made(wanted: ChatCompletionRequest) -> tuple[Asked, Writing]:
        asked = chat_of(wanted, headers)
        customs = custom_names(wanted)
        return asked, partial(ChatWriter, is_legacy=is_legacy(wanted), customs=customs, **written_as(wanted, asked))

    return await body.read_as(request, ChatCompletionRequest, made)


async def apply_template(request: web.Request) -> web.Response:
    state, headers, owner = request.app[STATE], request.headers.items(), request[FACTS].caller.owner
    async with in_time(request):
        (key, parent), conversation = await body.read_as(
            request,
            ChatCompletionRequest,
            lambda wanted: (session_of(wanted, headers), conversation_of(wanted)),
        )
        sender = sender_of(request)
        found = await rendered(state.served, conversation, key, parent, sender, is_look=True, is_shown=True)
        text = found.prompt.text
        return await state.engine.in_thread(
            owner, len(text), lambda: respond(RenderedTemplate(text.decode(errors="replace")))
        )
