"""POST /v1/chat/completions, and the prompt it would make: POST /apply-template."""

from __future__ import annotations

from aiohttp import web

from ...core.sampling import max_tokens_of
from ...http import body
from ...http.answer import answer
from ...http.context import FACTS, STATE
from ...http.deadline import in_time
from ...http.endpoints.wire.text import RenderedTemplate
from ...http.history import rendered
from ...http.respond import respond
from ...http.work import admitted, delivery_of, key_of, work_of
from ...turns.user_starts import user_starts
from .wire import ChatCompletionRequest


async def chat_completions(request: web.Request) -> web.StreamResponse:
    with admitted(request):
        return await _completed(request)


async def _completed(request: web.Request) -> web.StreamResponse:
    async with in_time(request):
        wanted = await body.read_generation(request, "chat", ChatCompletionRequest)
        key = key_of(request, wanted)
        max_tokens = _max_tokens(wanted, request.app[STATE].engine.info.n_ctx)
        work = work_of(request, wanted, key, max_tokens, "messages")
        chat = await rendered(request, wanted, key)
    has_opening = wanted.add_generation_prompt is not False
    starts = user_starts(chat.roles, chat.prompt.boundaries) if has_opening else {}
    whole = work(prompt=chat.prompt, history=chat.digest, user_starts=starts)
    return await answer(request, whole, delivery_of("chat", wanted))


def _max_tokens(wanted: ChatCompletionRequest, n_ctx: int) -> int:
    for name in ("max_completion_tokens", "max_tokens", "n_predict"):
        value = getattr(wanted, name)
        if value is not None:
            return max_tokens_of(name, value, n_ctx)
    return 0


async def apply_template(request: web.Request) -> web.Response:
    engine, owner = request.app[STATE].engine, request[FACTS].caller.owner
    async with in_time(request):
        wanted = await body.read_generation(request, "chat", ChatCompletionRequest)
        text = (await rendered(request, wanted, key_of(request, wanted))).prompt.text
        return await engine.in_thread(
            owner, len(text), lambda: respond(RenderedTemplate(text.decode(errors="replace")))
        )
