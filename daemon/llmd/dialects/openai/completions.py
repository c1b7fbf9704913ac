"""POST /v1/completions: text or tokens in, text out."""

from __future__ import annotations

from aiohttp import web

from ...core.errors import ApiError
from ...core.room import utf8_bytes
from ...core.sampling import max_tokens_of
from ...core.token_ids import token_bytes
from ...engine.text import Prompt
from ...http import body
from ...http.answer import answer
from ...http.context import FACTS, STATE
from ...http.deadline import in_time
from ...http.work import admitted, delivery_of, key_of, work_of
from .wire import CompletionRequest

MAX_TOKENS_DEFAULT = 16
"""OpenAI's default for this endpoint."""


async def completions(request: web.Request) -> web.StreamResponse:
    with admitted(request):
        return await _completed(request)


async def _completed(request: web.Request) -> web.StreamResponse:
    async with in_time(request):
        wanted = await body.read_generation(request, "completions", CompletionRequest)
        max_tokens = _max_tokens(wanted, request.app[STATE].engine.info.n_ctx)
        work = work_of(request, wanted, key_of(request, wanted), max_tokens, "prompt")
        prompt = await _prompt(request, wanted)
    return await answer(request, work(prompt=prompt), delivery_of("completions", wanted))


def _max_tokens(wanted: CompletionRequest, n_ctx: int) -> int:
    for name in ("max_tokens", "n_predict"):
        value = getattr(wanted, name)
        if value is not None:
            return max_tokens_of(name, value, n_ctx)
    return MAX_TOKENS_DEFAULT


async def _prompt(request: web.Request, wanted: CompletionRequest) -> Prompt:
    engine, owner = request.app[STATE].engine, request[FACTS].caller.owner
    text_or_tokens = _single(wanted.prompt)
    if isinstance(text_or_tokens, str):
        engine.room.check_bytes(utf8_bytes(text_or_tokens), "prompt")
        parse_special = wanted.parse_special is not False  # there is no template but the client
        tokens = await engine.tokenize(owner, text_or_tokens, add_special=True, parse_special=parse_special)
    else:
        engine.room.check_tokens(len(text_or_tokens), "prompt")
        tokens = token_bytes(text_or_tokens, engine.info.n_vocab, "prompt")
    if not tokens:
        raise ApiError("invalid_value", "prompt: there is no token in it.", "prompt")
    return Prompt(tokens)


def _single(prompt: str | list[int | str | list[int]]) -> str | list[int]:
    if isinstance(prompt, str):
        return prompt
    if not prompt:
        raise ApiError("invalid_value", "prompt: the list is empty.", "prompt")
    if set(map(type, prompt)) == {int}:
        return prompt  # type: ignore[return-value]  # all of it, as we have just seen
    if len(prompt) == 1 and not isinstance(prompt[0], int):
        return prompt[0]
    raise ApiError(
        "unsupported_parameter",
        f"prompt: a list of {len(prompt)} prompts; one prompt is answered per request.",
        "prompt",
    )
