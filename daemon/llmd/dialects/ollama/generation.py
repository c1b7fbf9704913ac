"""POST /api/chat and /api/generate."""

from __future__ import annotations

import msgspec
from aiohttp import web

from ...core.asked import Asked
from ...http import body
from ...http.answer import answer
from ...http.body import respond
from ...http.context import STATE, State
from ...http.writer import Writing
from . import wire
from .reader import chat_of, generate_of
from .wire import OllamaChatRequest, OllamaGenerateRequest
from .writer import GenerateWriter, OllamaChatWriter, facts_of


async def chat(request: web.Request) -> web.StreamResponse:
    return await answer(request, _read_chat)


async def generate(request: web.Request) -> web.StreamResponse:
    return await answer(request, _read_generate)


async def _read_chat(request: web.Request) -> tuple[Asked, Writing] | web.Response:
    headers, state = request.headers.items(), request.app[STATE]

    def made(wanted: OllamaChatRequest) -> tuple[Asked, Writing] | msgspec.Struct:
        asked = chat_of(wanted, headers)
        return _loaded_chat(state, wanted) if asked is None else (asked, OllamaChatWriter)

    return _answered(await body.read_as(request, OllamaChatRequest, made))


async def _read_generate(request: web.Request) -> tuple[Asked, Writing] | web.Response:
    headers, state = request.headers.items(), request.app[STATE]

    def made(wanted: OllamaGenerateRequest) -> tuple[Asked, Writing] | msgspec.Struct:
        asked = generate_of(wanted, headers)
        return _loaded_text(state, wanted) if asked is None else (asked, GenerateWriter)

    return _answered(await body.read_as(request, OllamaGenerateRequest, made))


def _answered(found: tuple[Asked, Writing] | msgspec.Struct) -> tuple[Asked, Writing] | web.Response:
    return respond(found) if isinstance(found, msgspec.Struct) else found


# --- a request without a prompt wants the model to be loaded, or to be given up --------------------------------------


def _loaded_chat(state: State, wanted: OllamaChatRequest) -> wire.OllamaChat:
    message = wire.OllamaAnswerMessage(role="assistant", content="")
    return wire.OllamaChat(message=message, done=True, done_reason=_loaded(wanted.keep_alive), **facts_of(state))


def _loaded_text(state: State, wanted: OllamaGenerateRequest) -> wire.OllamaGenerated:
    return wire.OllamaGenerated(response="", done=True, done_reason=_loaded(wanted.keep_alive), **facts_of(state))


def _loaded(keep_alive: str | float | None) -> wire.LoadReason:
    is_zero = keep_alive == 0 or (isinstance(keep_alive, str) and keep_alive.rstrip("smh") == "0")
    return "unload" if is_zero else "load"
