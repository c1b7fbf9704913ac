"""/tokenize and /detokenize. Their input can be longer than the context."""

from __future__ import annotations

from array import array
from typing import Any, cast

import msgspec
from aiohttp import web

from ...core import limits
from ...core.context_limits import token_bytes, utf8_bytes
from ...core.errors import invalid_value, required
from ...engine.engine import Engine
from .. import body
from ..body import in_time, respond
from ..context import FACTS, STATE
from .wire import DetokenizedText, DetokenizeRequest, TokenizeRequest, TokenPiece, Tokens

_TOKENS_AT_ONCE = 8192
"""Maximum number of tokens that one call encodes as JSON. A call holds Python's interpreter lock, so a longer call
would delay the event loop.
"""


async def tokenize(request: web.Request) -> web.Response:
    engine, owner = request.app[STATE].engine, request[FACTS].caller.owner
    async with in_time(request):
        parsed_body = await body.read(request, TokenizeRequest)
        name = "content" if parsed_body.content is not None else "prompt"
        text = required("content", parsed_body.content if parsed_body.content is not None else parsed_body.prompt)
        _check(name, utf8_bytes(text), limits.TOKENIZE_BYTES_MAX, "bytes")
        tokens = await engine.tokenize(
            owner, text, add_special=bool(parsed_body.add_special), parse_special=bool(parsed_body.parse_special)
        )
        return await engine.in_thread(
            owner, len(tokens), lambda: respond(_answer(engine, tokens, bool(parsed_body.with_pieces)))
        )


def _check(param: str, n: int, most: int, unit: str) -> None:
    if n > most:
        raise invalid_value(param, f"has {n} {unit}; at most {most} are allowed in one request")


def _answer(engine: Engine, tokens: bytes, with_pieces: bool) -> Tokens:
    """Returns the answer of /tokenize. Called in a text thread, because the text of each token needs a call into
    libllm.
    """
    ids = array("i", tokens)
    parts = []
    for at in range(0, len(ids), _TOKENS_AT_ONCE):
        listed: list[Any] = ids[at : at + _TOKENS_AT_ONCE].tolist()
        if with_pieces:
            listed = [TokenPiece(token, engine.piece(array("i", [token]).tobytes())) for token in listed]
        parts.append(msgspec.json.encode(listed)[1:-1])
    encoded = msgspec.Raw(b"[" + b",".join(parts) + b"]")
    return Tokens(cast("list[int | TokenPiece]", encoded), count=len(ids), max_model_len=engine.info.n_ctx)


async def detokenize(request: web.Request) -> web.Response:
    engine, owner = request.app[STATE].engine, request[FACTS].caller.owner
    async with in_time(request):
        parsed_body = await body.read(request, DetokenizeRequest)
        _check("tokens", len(parsed_body.tokens), max(limits.DETOKENIZE_TOKENS_MAX, engine.info.n_ctx), "token ids")
        tokens = token_bytes(parsed_body.tokens, engine.info.n_vocab, "tokens")
        text = await engine.detokenize(owner, tokens)
        return await engine.in_thread(owner, len(text), lambda: respond(DetokenizedText(content=text, prompt=text)))
