"""POST /v1/chat/completions, /v1/completions and /v1/embeddings, and POST /apply-template, which returns the prompt of
a chat.
"""

from __future__ import annotations

import base64
from functools import partial

from aiohttp import web

from ...core.generation_request import ChatPrompt
from ...core.session_key import Session
from ...http import body
from ...http.answer import Asking, EmbeddingAsking, answers, embeds, render_only
from ...http.body import in_time
from ...http.context import FACTS, STATE
from ...http.endpoints.wire import RenderedTemplate
from ...pipeline.embedding import Embedded
from ..embedding_input import embedding_job, listed
from .chat_writer import ChatWriter
from .reader import chat_of, completion_of, conversation_of, session_of, written_as
from .tools import custom_names, is_legacy
from .wire import ChatCompletionRequest, CompletionRequest, Embeddings, EmbeddingsRequest
from .wire.answer import EmbeddedText, EmbeddingsUsage
from .writer import CompletionWriter


@answers(ChatCompletionRequest)
def chat_completions(parsed_body: ChatCompletionRequest, request: web.Request) -> Asking:
    generation_request = chat_of(parsed_body, request.headers.items())
    customs = custom_names(parsed_body)
    return generation_request, partial(
        ChatWriter, is_legacy=is_legacy(parsed_body), customs=customs, **written_as(parsed_body, generation_request)
    )


@answers(CompletionRequest)
def completions(parsed_body: CompletionRequest, request: web.Request) -> Asking:
    generation_request = completion_of(parsed_body, request.headers.items())
    return generation_request, partial(CompletionWriter, **written_as(parsed_body, generation_request))


@embeds(EmbeddingsRequest)
def embeddings(parsed_body: EmbeddingsRequest, request: web.Request) -> EmbeddingAsking:
    model, is_packed = request.app[STATE].model_id, parsed_body.encoding_format == "base64"
    return embedding_job(parsed_body.input, "input", parsed_body.dimensions), lambda found: _vectors(
        found, model, is_packed
    )


def _vectors(embedded: Embedded, model: str, is_packed: bool) -> Embeddings:
    vectors = enumerate(embedded.vectors)
    data = [
        EmbeddedText(index=n, embedding=base64.b64encode(one).decode() if is_packed else listed(one))
        for n, one in vectors
    ]
    return Embeddings(data=data, model=model, usage=EmbeddingsUsage(embedded.n_tokens, embedded.n_tokens))


async def apply_template(request: web.Request) -> web.Response:
    state, headers, owner = request.app[STATE], request.headers.items(), request[FACTS].caller.owner

    def read(parsed_body: ChatCompletionRequest) -> tuple[Session, ChatPrompt]:
        return session_of(parsed_body, headers), conversation_of(parsed_body)

    async with in_time(request):
        text = (await render_only(request, ChatCompletionRequest, read, needs_text=True)).text
        return await state.engine.in_thread(
            owner, len(text), lambda: body.respond(RenderedTemplate(text.decode(errors="replace")))
        )
