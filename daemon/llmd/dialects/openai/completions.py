"""POST /v1/completions: text or tokens in, text out."""

from __future__ import annotations

from functools import partial

from aiohttp import web

from ...core.asked import Asked
from ...http import body
from ...http.answer import answer
from ...http.writer import Writing
from .reader import completion_of, written_as
from .wire import CompletionRequest
from .writer import CompletionWriter


async def completions(request: web.Request) -> web.StreamResponse:
    return await answer(request, _read)


async def _read(request: web.Request) -> tuple[Asked, Writing]:
    headers = request.headers.items()

    def made(wanted: CompletionRequest) -> tuple[Asked, Writing]:
        asked = completion_of(wanted, headers)
        return asked, partial(CompletionWriter, **written_as(wanted, asked))

    return await body.read_as(request, CompletionRequest, made)
