"""POST /completion, /infill and /embedding."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from aiohttp import web

from ...core.errors import ApiError
from ...core.generation_request import GenerationRequest
from ...http import body
from ...http.answer import answer, embed, reader
from ...http.writer import Writing
from ...pipeline.embedding import Embedded, EmbeddingJob
from ..embedding_input import embedding_job, listed
from .reader import completion_of, infill_of
from .wire import EmbeddingRequest, InfillRequest, NativeCompletionRequest, PlainEmbedding
from .writer import NativeWriter


def _completion(parsed_body: NativeCompletionRequest, request: web.Request) -> tuple[GenerationRequest, Writing]:
    return completion_of(parsed_body, request.headers.items()), partial(
        NativeWriter, fields=parsed_body.response_fields
    )


def _infill(parsed_body: InfillRequest, request: web.Request) -> tuple[GenerationRequest, Writing]:
    return infill_of(parsed_body, request.headers.items()), partial(NativeWriter, fields=parsed_body.response_fields)


async def completion(request: web.Request) -> web.StreamResponse:
    return await answer(request, reader(NativeCompletionRequest, _completion))


async def infill(request: web.Request) -> web.StreamResponse:
    return await answer(request, reader(InfillRequest, _infill))


async def embedding(request: web.Request) -> web.Response:
    def made(parsed_body: EmbeddingRequest) -> tuple[EmbeddingJob, Callable[[Embedded], list[PlainEmbedding]]]:
        param = "input" if parsed_body.content is None and parsed_body.input is not None else "content"
        client_input = parsed_body.content if parsed_body.content is not None else parsed_body.input
        if client_input is None:
            raise ApiError("missing_parameter", "content is missing.", "content")
        return embedding_job(client_input, param), _vectors

    return await embed(request, lambda: body.read_as(request, EmbeddingRequest, made))


def _vectors(embedded: Embedded) -> list[PlainEmbedding]:
    return [PlainEmbedding(n, [listed(one)]) for n, one in enumerate(embedded.vectors)]
