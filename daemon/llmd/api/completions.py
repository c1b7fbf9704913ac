"""POST /v1/completions: text or tokens in, text out."""

from __future__ import annotations

from aiohttp import web

from ..engine import Engine
from ..engine_text import Prompt
from ..errors import ApiError
from ..generation import token_bytes
from ..sampling import max_tokens_of
from ..wire.openai import CompletionRequest
from . import body
from .answer import answer
from .context import STATE
from .work import delivery_of, key_of, work_of

MAX_TOKENS_DEFAULT = 16
"""OpenAI's default for this endpoint."""


async def completions(request: web.Request) -> web.StreamResponse:
    engine = request.app[STATE].engine
    wanted = await body.read_generation(request, "completions", CompletionRequest)
    key = key_of(request, wanted)
    max_tokens = _max_tokens(wanted, engine.info.n_ctx)
    prompt = await _prompt(engine, wanted)
    return await answer(request, work_of(request, wanted, key, prompt, max_tokens), delivery_of("completions", wanted))


def _max_tokens(wanted: CompletionRequest, n_ctx: int) -> int:
    for name in ("max_tokens", "n_predict"):
        value = getattr(wanted, name)
        if value is not None:
            return max_tokens_of(name, value, n_ctx)
    return MAX_TOKENS_DEFAULT


async def _prompt(engine: Engine, wanted: CompletionRequest) -> Prompt:
    text_or_tokens = _single(wanted.prompt)
    if isinstance(text_or_tokens, str):
        parse_special = wanted.parse_special is not False  # there is no template but the client
        tokens = await engine.tokenize(text_or_tokens, add_special=True, parse_special=parse_special)
    else:
        tokens = checked_tokens(text_or_tokens, engine.info.n_vocab, "prompt")
    if not tokens:
        raise ApiError("invalid_value", "prompt: there is no token in it.", "prompt")
    return Prompt(tokens, "")


def _single(prompt: str | list[int | str | list[int]]) -> str | list[int]:
    if isinstance(prompt, str):
        return prompt
    numbers = [part for part in prompt if isinstance(part, int)]
    if numbers and len(numbers) == len(prompt):
        return numbers
    if len(prompt) == 1 and not isinstance(prompt[0], int):
        return prompt[0]
    if not prompt:
        raise ApiError("invalid_value", "prompt: the list is empty.", "prompt")
    raise ApiError(
        "unsupported_parameter",
        f"prompt: a list of {len(prompt)} prompts; one prompt is answered per request.",
        "prompt",
    )


def checked_tokens(tokens: list[int], n_vocab: int, param: str) -> bytes:
    """The tokens as the engine takes them; all must be in the vocabulary."""
    for index, token in enumerate(tokens):
        if not 0 <= token < n_vocab:
            raise ApiError(
                "invalid_token", f"{param}[{index}]: the vocabulary has tokens 0 to {n_vocab - 1}, not {token}.", param
            )
    return token_bytes(tokens)
