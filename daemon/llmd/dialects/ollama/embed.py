"""POST /api/embed, and /api/embeddings, which came before it."""

from __future__ import annotations

import time
from collections.abc import Callable

from aiohttp import web

from ...http import body
from ...http.answer import embed
from ...http.context import STATE
from ...pipeline.embedding import Embedded, EmbeddingAsked
from ..embedding_input import listed
from .wire import EmbedPromptRequest, EmbedRequest, OllamaEmbedding, OllamaEmbeddings


async def embed_texts(request: web.Request) -> web.Response:
    model, came_ns = request.app[STATE].model_id, time.monotonic_ns()

    def tell(found: Embedded) -> OllamaEmbeddings:
        return OllamaEmbeddings(
            model=model,
            embeddings=[listed(one) for one in found.vectors],
            total_duration=time.monotonic_ns() - came_ns,
            prompt_eval_count=found.n_tokens,
        )

    def made(wanted: EmbedRequest) -> tuple[EmbeddingAsked, Callable[[Embedded], OllamaEmbeddings]]:
        is_list = isinstance(wanted.input, list)
        asked = EmbeddingAsked(
            list(wanted.input) if isinstance(wanted.input, list) else [wanted.input],
            "input",
            is_list=is_list,
            n_dimensions=wanted.dimensions,
            truncates=wanted.truncate is not False,
        )
        return asked, tell

    return await embed(request, lambda: body.read_as(request, EmbedRequest, made))


async def embed_prompt(request: web.Request) -> web.Response:
    def made(wanted: EmbedPromptRequest) -> tuple[EmbeddingAsked, Callable[[Embedded], OllamaEmbedding]]:
        asked = EmbeddingAsked([wanted.prompt], "prompt", is_list=False, truncates=True)
        return asked, lambda found: OllamaEmbedding(listed(found.vectors[0]))

    return await embed(request, lambda: body.read_as(request, EmbedPromptRequest, made))
