"""POST /api/chat, /api/generate, /api/embed and /api/embeddings."""

from __future__ import annotations

import time

import msgspec
from aiohttp import web

from ...http.answer import Asking, EmbeddingAsking, answers, embeds
from ...http.context import FACTS, STATE
from ...pipeline.embedding import EmbeddingJob
from ..embedding_input import listed
from . import wire
from .reader import chat_of, generate_of
from .writer import GenerateWriter, OllamaChatWriter, facts_of


@answers(wire.OllamaChatRequest)
def chat(body: wire.OllamaChatRequest, request: web.Request) -> Asking | msgspec.Struct:
    generation_request = chat_of(body, request.headers.items())
    if generation_request is not None:
        return generation_request, OllamaChatWriter
    message, reason = wire.OllamaAnswerMessage(role="assistant", content=""), _loaded(body.keep_alive)
    return wire.OllamaChat(message=message, done=True, done_reason=reason, **facts_of(request.app[STATE]))


@answers(wire.OllamaGenerateRequest)
def generate(body: wire.OllamaGenerateRequest, request: web.Request) -> Asking | msgspec.Struct:
    generation_request = generate_of(body, request.headers.items())
    if generation_request is not None:
        return generation_request, GenerateWriter
    reason = _loaded(body.keep_alive)
    return wire.OllamaGenerated(response="", done=True, done_reason=reason, **facts_of(request.app[STATE]))


def _loaded(keep_alive: str | float | None) -> wire.LoadReason:
    """Returns the done_reason of a request without a prompt. For such a request, Ollama loads or unloads the model.
    llmd does neither, but answers like Ollama.
    """
    is_zero = keep_alive == 0 or (isinstance(keep_alive, str) and keep_alive.rstrip("smh") == "0")
    return "unload" if is_zero else "load"


# --- embeddings ------------------------------------------------------------------------------------------------------


@embeds(wire.EmbedRequest)
def embed_texts(body: wire.EmbedRequest, request: web.Request) -> EmbeddingAsking:
    model, came_s = request.app[STATE].model_id, request[FACTS].came_s
    is_list = isinstance(body.input, list)
    job = EmbeddingJob(
        list(body.input) if isinstance(body.input, list) else [body.input],
        "input",
        is_list=is_list,
        n_dimensions=body.dimensions,
        truncates=body.truncate is not False,
    )
    return job, lambda embedded: wire.OllamaEmbeddings(
        model=model,
        embeddings=[listed(one) for one in embedded.vectors],
        total_duration=round(1e9 * (time.monotonic() - came_s)),
        prompt_eval_count=embedded.n_tokens,
    )


@embeds(wire.EmbedPromptRequest)
def embed_prompt(body: wire.EmbedPromptRequest, _: web.Request) -> EmbeddingAsking:
    job = EmbeddingJob([body.prompt], "prompt", is_list=False, truncates=True)
    return job, lambda embedded: wire.OllamaEmbedding(listed(embedded.vectors[0]))
