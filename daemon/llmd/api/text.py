"""/tokenize and /detokenize."""

from __future__ import annotations

from array import array

from aiohttp import web

from ..engine import Engine
from ..errors import ApiError
from ..wire.sessions import DetokenizedText, DetokenizeRequest, TokenizeRequest, TokenPiece, Tokens
from . import body
from .completions import checked_tokens
from .context import STATE
from .respond import respond


async def tokenize(request: web.Request) -> web.Response:
    engine = request.app[STATE].engine
    wanted = await body.read(request, TokenizeRequest)
    text = wanted.content if wanted.content is not None else wanted.prompt
    if text is None:
        raise ApiError("missing_parameter", "content is missing.", "content")
    tokens = array("i")
    tokens.frombytes(
        await engine.tokenize(text, add_special=bool(wanted.add_special), parse_special=bool(wanted.parse_special))
    )
    return await engine.in_thread(lambda: respond(_answer(engine, tokens, bool(wanted.with_pieces))))


def _answer(engine: Engine, tokens: array[int], with_pieces: bool) -> Tokens:
    """Each piece is a call into libllm: a long text has too many of them for the event loop."""
    listed: list[int | TokenPiece] = list(tokens)
    if with_pieces:
        listed = [TokenPiece(token, engine.piece(array("i", [token]).tobytes())) for token in tokens]
    return Tokens(listed, count=len(tokens), max_model_len=engine.info.n_ctx)


async def detokenize(request: web.Request) -> web.Response:
    engine = request.app[STATE].engine
    wanted = await body.read(request, DetokenizeRequest)
    text = await engine.detokenize(checked_tokens(wanted.tokens, engine.info.n_vocab, "tokens"))
    return respond(DetokenizedText(content=text, prompt=text))
