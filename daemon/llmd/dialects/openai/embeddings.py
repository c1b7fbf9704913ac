"""POST /v1/embeddings."""

from __future__ import annotations

import base64
from collections.abc import Callable

from aiohttp import web

from ...http import body
from ...http.answer import embed
from ...http.context import STATE
from ...pipeline.embedding import Embedded, EmbeddingAsked
from ..embedding_input import asked_of, listed
from .wire import Embeddings, EmbeddingsRequest
from .wire.answer import EmbeddedText, EmbeddingsUsage


async def embeddings(request: web.Request) -> web.Response:
    model = request.app[STATE].model_id

    def made(wanted: EmbeddingsRequest) -> tuple[EmbeddingAsked, Callable[[Embedded], Embeddings]]:
        is_packed = wanted.encoding_format == "base64"
        return asked_of(wanted.input, "input", wanted.dimensions), lambda found: _answer(found, model, is_packed)

    return await embed(request, lambda: body.read_as(request, EmbeddingsRequest, made))


def _answer(found: Embedded, model: str, is_packed: bool) -> Embeddings:
    vectors = enumerate(found.vectors)
    data = [EmbeddedText(index=n, embedding=_packed(one) if is_packed else listed(one)) for n, one in vectors]
    return Embeddings(data=data, model=model, usage=EmbeddingsUsage(found.n_tokens, found.n_tokens))


def _packed(vector: bytes) -> str:
    return base64.b64encode(vector).decode()
