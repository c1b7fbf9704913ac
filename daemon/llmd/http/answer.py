"""Handles a request that generates text or embeddings. Reads the request, passes it through the pipeline, and delivers
the answer as one body or as a stream.

The first byte of the answer is sent only after the engine has admitted the request. So a refusal can have an HTTP error
status. A failure after the first byte is reported as an event of the stream.
"""

from __future__ import annotations

import re
import time
from collections.abc import Awaitable, Callable
from functools import wraps
from typing import TypeVar

import msgspec
from aiohttp import web

from ..core import limits
from ..core.errors import ApiError, ContextLengthError
from ..core.generation_request import ChatPrompt, GenerationRequest, RawPrompt
from ..core.parts import End
from ..core.session_key import Session
from ..engine.generation import Generation
from ..engine.text import Prompt
from ..pipeline.answering import Answering, Observer, Ready, make_ready
from ..pipeline.embedding import Embedded, EmbeddingJob, embedded
from ..pipeline.prompt import rendered
from ..pipeline.services import Sender
from .body import Answer, ends_in_time, in_time, read_as, respond
from .context import FACTS, STATE, Facts, State
from .endpoints.endpoint import Handler
from .stream import Stream, Writer, Writing

T = TypeVar("T")

SESSION_HEADER = "X-LLM-Session-Id"
_WORDS = re.compile(rf"\S[\s\S]{{0,{4 * limits.LAST_WORDS_CHARS_MAX}}}")
"""Matches the first characters of a text after its leading blanks. Used instead of strip(), which would copy the text,
and the text can have megabytes.
"""
_EMBEDDING = "Use POST /v1/embeddings, /embedding or /api/embed."

Asking = tuple[GenerationRequest, Writing]
"""A parsed request, and the function that makes the writer of its answer."""
EmbeddingAsking = tuple[EmbeddingJob, Callable[[Embedded], Answer]]
"""A request for embeddings, and the function that makes the answer from the vectors. The function runs in a text
thread.
"""
Reader = Callable[[web.Request], Awaitable[Asking | web.Response]]
"""Type of the functions that parse a request of one dialect. Such a function returns the parsed request, or the
complete HTTP answer if there is nothing to generate. It raises ApiError.
"""


async def answer(request: web.Request, read: Reader) -> web.StreamResponse:
    state, owner = request.app[STATE], request[FACTS].caller.owner
    with state.admission.entered(owner):  # refuses a request beyond the owner's limit before its body is read
        if state.engine.info.only_embeds:
            raise ApiError("no_generation", f"{state.model_id} makes embeddings and cannot generate text. {_EMBEDDING}")
        async with in_time(request):
            found = await read(request)
        if isinstance(found, web.Response):
            return found
        generation_request, writing = found
        request[FACTS].key = generation_request.key
        try:
            async with in_time(request):
                ready = await make_ready(state.services, generation_request, sender_of(request))
            return await _answered(request, ready, writing)
        except ContextLengthError as error:
            state.turns.refused(owner, generation_request.key.id, int(time.time() * 1000), error.n_tokens - 1)
            raise


def answers(kind: type[T]) -> Callable[[Callable[[T, web.Request], Asking | msgspec.Struct]], Handler]:
    """Decorates a function that turns the body of a request, decoded as `kind`, into a parsed request. The result is an
    HTTP handler that answers the request. The function runs in the thread that decodes the body. If the function
    returns a struct, nothing is generated, and the struct is the answer.
    """

    def decorated(make: Callable[[T, web.Request], Asking | msgspec.Struct]) -> Handler:
        async def read(request: web.Request) -> Asking | web.Response:
            found = await read_as(request, kind, lambda parsed_body: make(parsed_body, request))
            return respond(found) if isinstance(found, msgspec.Struct) else found

        @wraps(make)  # /openapi.json uses the function's name as the name of the operation
        async def handler(request: web.Request) -> web.StreamResponse:
            return await answer(request, read)

        return handler

    return decorated


def embeds(kind: type[T]) -> Callable[[Callable[[T, web.Request], EmbeddingAsking]], Handler]:
    """Decorates a function that turns the body of a request, decoded as `kind`, into a request for embeddings. The
    result is an HTTP handler that answers the request. The function runs in the thread that decodes the body.
    """

    def decorated(make: Callable[[T, web.Request], EmbeddingAsking]) -> Handler:
        @wraps(make)
        async def handler(request: web.Request) -> web.StreamResponse:
            state, owner = request.app[STATE], request[FACTS].caller.owner
            with state.admission.entered(owner):
                async with in_time(request):
                    job, tell = await read_as(request, kind, lambda parsed_body: make(parsed_body, request))
                    found = await embedded(state.services, job, sender_of(request))
                    return await state.engine.in_thread(owner, found.n_bytes, lambda: respond(tell(found)))

        return handler

    return decorated


async def render_only(
    request: web.Request,
    kind: type[T],
    read: Callable[[T], tuple[Session, ChatPrompt]],
    *,
    has_to_fit: bool = True,
    needs_text: bool = False,
) -> Prompt:
    """Renders a conversation as a prompt without generating an answer, and changes no session. If `has_to_fit` is
    false, the conversation can be larger than the context. If `needs_text` is true, the prompt has its text. Must be
    awaited within `in_time`.
    """
    (key, parent), conversation = await read_as(request, kind, read)
    services, sender = request.app[STATE].services, sender_of(request)
    found = await rendered(
        services, conversation, key, parent, sender, is_dry_run=True, has_to_fit=has_to_fit, needs_text=needs_text
    )
    return found.prompt


def sender_of(request: web.Request) -> Sender:
    facts = request[FACTS]
    return Sender(facts.caller.owner, facts.n_bytes, facts.is_large)


async def _answered(request: web.Request, ready: Ready, writing: Writing) -> web.StreamResponse:
    state, facts = request.app[STATE], request[FACTS]
    if state.is_stopping:
        raise ApiError("shutting_down")
    answering = facts.answering = Answering(state.services, ready, lambda: _observer(state, facts))
    try:
        with ends_in_time(request, answering.cancel):
            await answering.admission()
            _note_client(request, answering, ready.request.prompt)
            headers = {} if answering.key.is_scratch else {SESSION_HEADER: answering.key.id}
            if ready.request.is_stream:
                return await Stream(request, answering, writing(state), headers).run()
            body = await _complete_body(request, ready, answering, writing(state))
            return web.Response(body=body, content_type="application/json", headers=headers)
    finally:
        answering.release()


def _note_client(request: web.Request, answering: Answering, prompt: ChatPrompt | RawPrompt) -> None:
    """Records the name of the client program and the beginning of the user's last message. Lists of sessions show both,
    so that people recognize a session.
    """
    turns, name, words = request.app[STATE].turns, _program(request.headers.get("User-Agent", "")), _last_words(prompt)
    for generation in answering.generations:
        if generation.admitted is not None:
            turns.came_from(generation.work.owner, generation.work.key.id, generation.admitted.entry, name, words)


def _program(agent: str) -> str:
    """Returns the name of the program in a User-Agent header, for example "claude-cli" for "claude-cli/2.1.330
    (external, cli)".
    """
    name = re.match(r"[!-.0-~]+", agent)
    return name[0][: limits.CLIENT_CHARS_MAX] if name else ""


def _last_words(prompt: ChatPrompt | RawPrompt) -> str:
    """Returns the beginning of the last user message on one line. Blanks replace characters that are not printable.
    Examples are control characters and characters that reverse the direction of text.
    """
    if isinstance(prompt, RawPrompt):
        return ""
    texts = (_WORDS.search(one.content) for one in reversed(prompt.messages) if one.role == "user")
    begun = next(filter(None, texts), None)
    printable = "".join(sign if sign.isprintable() else " " for sign in begun[0]) if begun is not None else ""
    return " ".join(printable.split())[: limits.LAST_WORDS_CHARS_MAX]


async def _complete_body(request: web.Request, ready: Ready, answering: Answering, writer: Writer) -> bytes:
    parts = await answering.all_parts()
    if ready.request.n_logprobs is None:
        return writer.complete(parts)
    engine, owner = request.app[STATE].engine, request[FACTS].caller.owner
    n_tokens = sum(part.usage.n_generated for part in parts if isinstance(part, End))
    return await engine.in_thread(owner, n_tokens * limits.LIKELIEST_MAX, lambda: writer.complete(parts))


def _observer(state: State, facts: Facts) -> Observer:
    metrics = state.metrics
    watch = metrics.watch(facts.came_s)
    owner = None if state.keys.is_open else facts.caller.owner

    def ended(generation: Generation) -> None:
        metrics.generation_ended(facts.endpoint, generation, watch.seconds(), owner)

    return Observer(watch.text, facts.trace.follow(ended) if facts.trace is not None else ended)
