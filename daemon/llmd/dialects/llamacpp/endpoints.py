"""POST /completion, /infill and /embedding."""

from __future__ import annotations

from functools import partial

from aiohttp import web

from ...core.errors import missing
from ...http.answer import Asking, EmbeddingAsking, answers, embeds
from ...pipeline.embedding import Embedded
from ..embedding_input import embedding_job, listed
from .reader import completion_of, infill_of
from .wire import EmbeddingRequest, InfillRequest, NativeCompletionRequest, PlainEmbedding
from .writer import NativeWriter


@answers(NativeCompletionRequest)
def completion(body: NativeCompletionRequest, request: web.Request) -> Asking:
    return completion_of(body, request.headers.items()), partial(NativeWriter, fields=body.response_fields)


@answers(InfillRequest)
def infill(body: InfillRequest, request: web.Request) -> Asking:
    return infill_of(body, request.headers.items()), partial(NativeWriter, fields=body.response_fields)


@embeds(EmbeddingRequest)
def embedding(body: EmbeddingRequest, _: web.Request) -> EmbeddingAsking:
    param = "input" if body.content is None and body.input is not None else "content"
    texts = body.content if body.content is not None else body.input
    if texts is None:
        raise missing("content")
    return embedding_job(texts, param), _vectors


def _vectors(embedded: Embedded) -> list[PlainEmbedding]:
    return [PlainEmbedding(n, [listed(one)]) for n, one in enumerate(embedded.vectors)]
