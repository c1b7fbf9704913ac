"""POST /api/chat and /api/generate."""

from __future__ import annotations

import msgspec
from aiohttp import web

from ...core.asked import Asked
from ...http.answer import answer, reader
from ...http.context import STATE, State
from ...http.writer import Writing
from . import wire
from .reader import chat_of, generate_of
from .wire import OllamaChatRequest, OllamaGenerateRequest
from .writer import GenerateWriter, OllamaChatWriter, facts_of


def _chat(wanted: OllamaChatRequest, request: web.Request) -> tuple[Asked, Writing] | msgspec.Struct:
    asked = chat_of(wanted, request.headers.items())
    return _loaded_chat(request.app[STATE], wanted) if asked is None else (asked, OllamaChatWriter)


def _generate(wanted: OllamaGenerateRequest, request: web.Request) -> tuple[Asked, Writing] | msgspec.Struct:
    asked = generate_of(wanted, request.headers.items())
    return _loaded_text(request.app[STATE], wanted) if asked is None else (asked, GenerateWriter)


async def chat(request: web.Request) -> web.StreamResponse:
    return await answer(request, reader(OllamaChatRequest, _chat))


async def generate(request: web.Request) -> web.StreamResponse:
    return await answer(request, reader(OllamaGenerateRequest, _generate))


# --- a request without a prompt wants the model to be loaded, or to be given up --------------------------------------


def _loaded_chat(state: State, wanted: OllamaChatRequest) -> wire.OllamaChat:
    message = wire.OllamaAnswerMessage(role="assistant", content="")
    return wire.OllamaChat(message=message, done=True, done_reason=_loaded(wanted.keep_alive), **facts_of(state))


def _loaded_text(state: State, wanted: OllamaGenerateRequest) -> wire.OllamaGenerated:
    return wire.OllamaGenerated(response="", done=True, done_reason=_loaded(wanted.keep_alive), **facts_of(state))


def _loaded(keep_alive: str | float | None) -> wire.LoadReason:
    is_zero = keep_alive == 0 or (isinstance(keep_alive, str) and keep_alive.rstrip("smh") == "0")
    return "unload" if is_zero else "load"
