"""POST /api/chat and /api/generate."""

from __future__ import annotations

import time
from collections.abc import Callable

import msgspec
from aiohttp import web

from ...core.generation_request import GenerationRequest
from ...http import body
from ...http.answer import answer, embed, reader
from ...http.context import STATE, State
from ...http.writer import Writing
from ...pipeline.embedding import Embedded, EmbeddingJob
from ..embedding_input import listed
from . import wire
from .reader import chat_of, generate_of
from .wire import (
    EmbedPromptRequest,
    EmbedRequest,
    OllamaChatRequest,
    OllamaEmbedding,
    OllamaEmbeddings,
    OllamaGenerateRequest,
)
from .writer import GenerateWriter, OllamaChatWriter, facts_of


def _chat(parsed_body: OllamaChatRequest, request: web.Request) -> tuple[GenerationRequest, Writing] | msgspec.Struct:
    generation_request = chat_of(parsed_body, request.headers.items())
    return (
        _loaded_chat(request.app[STATE], parsed_body)
        if generation_request is None
        else (generation_request, OllamaChatWriter)
    )


def _generate(
    parsed_body: OllamaGenerateRequest, request: web.Request
) -> tuple[GenerationRequest, Writing] | msgspec.Struct:
    generation_request = generate_of(parsed_body, request.headers.items())
    return (
        _loaded_text(request.app[STATE], parsed_body)
        if generation_request is None
        else (generation_request, GenerateWriter)
    )


async def chat(request: web.Request) -> web.StreamResponse:
    return await answer(request, reader(OllamaChatRequest, _chat))


async def generate(request: web.Request) -> web.StreamResponse:
    return await answer(request, reader(OllamaGenerateRequest, _generate))


# --- a request without a prompt wants the model to be loaded, or to be given up --------------------------------------


def _loaded_chat(state: State, parsed_body: OllamaChatRequest) -> wire.OllamaChat:
    message = wire.OllamaAnswerMessage(role="assistant", content="")
    return wire.OllamaChat(message=message, done=True, done_reason=_loaded(parsed_body.keep_alive), **facts_of(state))


def _loaded_text(state: State, parsed_body: OllamaGenerateRequest) -> wire.OllamaGenerated:
    return wire.OllamaGenerated(response="", done=True, done_reason=_loaded(parsed_body.keep_alive), **facts_of(state))


def _loaded(keep_alive: str | float | None) -> wire.LoadReason:
    is_zero = keep_alive == 0 or (isinstance(keep_alive, str) and keep_alive.rstrip("smh") == "0")
    return "unload" if is_zero else "load"


# --- embeddings -------------------------------------------------------------------------------------------------------


async def embed_texts(request: web.Request) -> web.Response:
    model, came_ns = request.app[STATE].model_id, time.monotonic_ns()

    def answer_of(embedded: Embedded) -> OllamaEmbeddings:
        return OllamaEmbeddings(
            model=model,
            embeddings=[listed(one) for one in embedded.vectors],
            total_duration=time.monotonic_ns() - came_ns,
            prompt_eval_count=embedded.n_tokens,
        )

    def made(parsed_body: EmbedRequest) -> tuple[EmbeddingJob, Callable[[Embedded], OllamaEmbeddings]]:
        is_list = isinstance(parsed_body.input, list)
        job = EmbeddingJob(
            list(parsed_body.input) if isinstance(parsed_body.input, list) else [parsed_body.input],
            "input",
            is_list=is_list,
            n_dimensions=parsed_body.dimensions,
            truncates=parsed_body.truncate is not False,
        )
        return job, answer_of

    return await embed(request, lambda: body.read_as(request, EmbedRequest, made))


async def embed_prompt(request: web.Request) -> web.Response:
    def made(parsed_body: EmbedPromptRequest) -> tuple[EmbeddingJob, Callable[[Embedded], OllamaEmbedding]]:
        job = EmbeddingJob([parsed_body.prompt], "prompt", is_list=False, truncates=True)
        return job, lambda embedded: OllamaEmbedding(listed(embedded.vectors[0]))

    return await embed(request, lambda: body.read_as(request, EmbedPromptRequest, made))
