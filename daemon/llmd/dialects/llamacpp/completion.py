"""POST /completion and /infill."""

from __future__ import annotations

from functools import partial

from aiohttp import web

from ...core.asked import Asked
from ...http import body
from ...http.answer import answer
from ...http.writer import Writing
from .reader import completion_of, infill_of
from .wire import InfillRequest, NativeCompletionRequest, NativeGeneration
from .writer import NativeWriter


async def completion(request: web.Request) -> web.StreamResponse:
    return await answer(request, _read_completion)


async def infill(request: web.Request) -> web.StreamResponse:
    return await answer(request, _read_infill)


async def _read_completion(request: web.Request) -> tuple[Asked, Writing]:
    headers = request.headers.items()

    def made(wanted: NativeCompletionRequest) -> tuple[Asked, Writing]:
        return completion_of(wanted, headers), _writing(wanted)

    return await body.read_as(request, NativeCompletionRequest, made)


async def _read_infill(request: web.Request) -> tuple[Asked, Writing]:
    headers = request.headers.items()

    def made(wanted: InfillRequest) -> tuple[Asked, Writing]:
        return infill_of(wanted, headers), _writing(wanted)

    return await body.read_as(request, InfillRequest, made)


def _writing(wanted: NativeGeneration) -> Writing:
    return partial(NativeWriter, fields=wanted.response_fields)
