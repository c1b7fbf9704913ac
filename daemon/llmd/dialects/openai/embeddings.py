"""POST /v1/embeddings, and /embedding as llama.cpp has it."""

from __future__ import annotations

import base64
from collections.abc import Callable
from typing import cast

from aiohttp import web

from ...core.errors import ApiError
from ...http import body
from ...http.answer import embed
from ...http.context import STATE
from ...pipeline.embedding import Embedded, EmbeddingAsked, as_json
from .parameters import EMBEDDING, EMBEDDINGS
from .wire import EmbeddedText, EmbeddingRequest, Embeddings, EmbeddingsRequest, EmbeddingsUsage, PlainEmbedding

Input = str | list[int | str | list[int]]


async def embeddings(request: web.Request) -> web.Response:
    model = request.app[STATE].model_id

    def made(wanted: EmbeddingsRequest) -> tuple[EmbeddingAsked, Callable[[Embedded], Embeddings]]:
        is_packed = wanted.encoding_format == "base64"
        return asked_of(wanted.input, "input", wanted.dimensions), lambda found: _answer(found, model, is_packed)

    return await embed(request, lambda: body.read_as(request, EmbeddingsRequest, EMBEDDINGS.check, made))


async def embedding(request: web.Request) -> web.Response:
    def made(wanted: EmbeddingRequest) -> tuple[EmbeddingAsked, Callable[[Embedded], list[PlainEmbedding]]]:
        param = "input" if wanted.content is None and wanted.input is not None else "content"
        given = wanted.content if wanted.content is not None else wanted.input
        if given is None:
            raise ApiError("missing_parameter", "content is missing.", "content")
        return asked_of(given, param), _plain_answer

    return await embed(request, lambda: body.read_as(request, EmbeddingRequest, EMBEDDING.check, made))


def asked_of(given: Input, param: str, n_dimensions: int | None = None) -> EmbeddingAsked:
    """Numbers are the tokens of one text. Raises ApiError."""
    if isinstance(given, str):
        return EmbeddingAsked([given], param, is_list=False, n_dimensions=n_dimensions)
    kinds = set(map(type, given))
    if kinds == {int}:
        return EmbeddingAsked([cast(list[int], given)], param, is_list=False, n_dimensions=n_dimensions)
    if int in kinds:
        raise ApiError("invalid_type", f"{param}: token ids and texts cannot be mixed in one list.", param)
    return EmbeddingAsked(cast(list[str | list[int]], given), param, n_dimensions=n_dimensions)


def _answer(found: Embedded, model: str, is_packed: bool) -> Embeddings:
    vectors = enumerate(found.vectors)
    data = [EmbeddedText(index=n, embedding=_packed(one) if is_packed else _listed(one)) for n, one in vectors]
    return Embeddings(data=data, model=model, usage=EmbeddingsUsage(found.n_tokens, found.n_tokens))


def _plain_answer(found: Embedded) -> list[PlainEmbedding]:
    return [PlainEmbedding(n, [_listed(one)]) for n, one in enumerate(found.vectors)]


def _packed(vector: bytes) -> str:
    return base64.b64encode(vector).decode()


def _listed(vector: bytes) -> list[float]:
    return cast("list[float]", as_json(vector))  # as msgspec is to write it
