"""POST /embedding."""

from __future__ import annotations

from collections.abc import Callable

from aiohttp import web

from ...core.errors import ApiError
from ...http import body
from ...http.answer import embed
from ...pipeline.embedding import Embedded, EmbeddingAsked
from ..embedding_input import asked_of, listed
from .wire import EmbeddingRequest, PlainEmbedding


async def embedding(request: web.Request) -> web.Response:
    def made(wanted: EmbeddingRequest) -> tuple[EmbeddingAsked, Callable[[Embedded], list[PlainEmbedding]]]:
        param = "input" if wanted.content is None and wanted.input is not None else "content"
        given = wanted.content if wanted.content is not None else wanted.input
        if given is None:
            raise ApiError("missing_parameter", "content is missing.", "content")
        return asked_of(given, param), _answer

    return await embed(request, lambda: body.read_as(request, EmbeddingRequest, made))


def _answer(found: Embedded) -> list[PlainEmbedding]:
    return [PlainEmbedding(n, [listed(one)]) for n, one in enumerate(found.vectors)]
