"""POST /v1/chat/completions, /v1/completions, /v1/embeddings, and the prompt of a chat: POST /apply-template."""

from __future__ import annotations

import base64
from collections.abc import Callable
from functools import partial

from aiohttp import web

from ...core.generation_request import ChatPrompt, GenerationRequest
from ...core.session_key import Session
from ...http import body
from ...http.answer import answer, embed, reader, render_only
from ...http.body import in_time
from ...http.context import FACTS, STATE
from ...http.endpoints.wire import RenderedTemplate
from ...http.writer import Writing
from ...pipeline.embedding import Embedded, EmbeddingJob
from ..embedding_input import embedding_job, listed
from .chat_writer import ChatWriter
from .reader import chat_of, completion_of, conversation_of, session_of, written_as
from .tools import custom_names, is_legacy
from .wire import ChatCompletionRequest, CompletionRequest, Embeddings, EmbeddingsRequest
from .wire.answer import EmbeddedText, EmbeddingsUsage
from .writer import CompletionWriter


def _chat(parsed_body: ChatCompletionRequest, request: web.Request) -> tuple[GenerationRequest, Writing]:
    generation_request = chat_of(parsed_body, request.headers.items())
    customs = custom_names(parsed_body)
    return generation_request, partial(
        ChatWriter, is_legacy=is_legacy(parsed_body), customs=customs, **written_as(parsed_body, generation_request)
    )


def _completion(parsed_body: CompletionRequest, request: web.Request) -> tuple[GenerationRequest, Writing]:
    generation_request = completion_of(parsed_body, request.headers.items())
    return generation_request, partial(CompletionWriter, **written_as(parsed_body, generation_request))


async def chat_completions(request: web.Request) -> web.StreamResponse:
    return await answer(request, reader(ChatCompletionRequest, _chat))


async def completions(request: web.Request) -> web.StreamResponse:
    return await answer(request, reader(CompletionRequest, _completion))


async def embeddings(request: web.Request) -> web.Response:
    model = request.app[STATE].model_id

    def made(parsed_body: EmbeddingsRequest) -> tuple[EmbeddingJob, Callable[[Embedded], Embeddings]]:
        is_packed = parsed_body.encoding_format == "base64"
        return embedding_job(parsed_body.input, "input", parsed_body.dimensions), lambda found: _vectors(
            found, model, is_packed
        )

    return await embed(request, lambda: body.read_as(request, EmbeddingsRequest, made))


def _vectors(embedded: Embedded, model: str, is_packed: bool) -> Embeddings:
    vectors = enumerate(embedded.vectors)
    data = [EmbeddedText(index=n, embedding=_packed(one) if is_packed else listed(one)) for n, one in vectors]
    return Embeddings(data=data, model=model, usage=EmbeddingsUsage(embedded.n_tokens, embedded.n_tokens))


def _packed(vector: bytes) -> str:
    return base64.b64encode(vector).decode()


async def apply_template(request: web.Request) -> web.Response:
    state, headers, owner = request.app[STATE], request.headers.items(), request[FACTS].caller.owner

    def read(parsed_body: ChatCompletionRequest) -> tuple[Session, ChatPrompt]:
        return session_of(parsed_body, headers), conversation_of(parsed_body)

    async with in_time(request):
        text = (await render_only(request, ChatCompletionRequest, read, needs_text=True)).text
        return await state.engine.in_thread(
            owner, len(text), lambda: body.respond(RenderedTemplate(text.decode(errors="replace")))
        )
