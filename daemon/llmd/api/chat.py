"""POST /v1/chat/completions, and the prompt it would make: POST /apply-template."""

from __future__ import annotations

import dataclasses

from aiohttp import web

from ..sampling import max_tokens_of
from ..turns import user_starts
from ..wire.openai import ChatCompletionRequest
from ..wire.sessions import RenderedTemplate
from . import body
from .answer import answer
from .context import STATE
from .history import rendered
from .respond import respond
from .work import delivery_of, key_of, work_of


async def chat_completions(request: web.Request) -> web.StreamResponse:
    engine = request.app[STATE].engine
    wanted = await body.read_generation(request, "chat", ChatCompletionRequest)
    key = key_of(request, wanted)
    max_tokens = _max_tokens(wanted, engine.info.n_ctx)
    chat = await rendered(request, wanted, key)
    work = work_of(request, wanted, key, chat.prompt, max_tokens, chat.digest)
    if wanted.add_generation_prompt is not False:
        work = dataclasses.replace(work, user_starts=user_starts(chat.roles, chat.prompt.boundaries))
    return await answer(request, work, delivery_of("chat", wanted))


def _max_tokens(wanted: ChatCompletionRequest, n_ctx: int) -> int:
    for name in ("max_completion_tokens", "max_tokens", "n_predict"):
        value = getattr(wanted, name)
        if value is not None:
            return max_tokens_of(name, value, n_ctx)
    return 0


async def apply_template(request: web.Request) -> web.Response:
    wanted = await body.read_generation(request, "chat", ChatCompletionRequest)
    chat = await rendered(request, wanted, key_of(request, wanted))
    return respond(RenderedTemplate(chat.prompt.text))
