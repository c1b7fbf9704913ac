"""POST /api/pull: downloads a model to the cache of huggingface.co's tools. The lines are those of Ollama, so that
Ollama's clients show the progress.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable
from contextlib import suppress

import msgspec
from aiohttp import web

from ...core.errors import ApiError, invalid_value, required
from ...engine.machine import memory_for_model
from ...http import body
from ...http.body import in_time, respond
from ...http.context import FACTS, STATE
from ...http.framing import LINES
from ...models.errors import ModelError
from ...models.finding import pull
from ...models.names import HubName, parse_hub_name
from ...process.progress import Download
from . import wire
from .writer import ENVELOPE

log = logging.getLogger("llmd.http")

_AFTER = ("verifying sha256 digest", "writing manifest", "success")


class _Abandoned(Exception):
    """Ends the thread of a download after the client has disconnected. The downloaded bytes are kept."""


class _Pull:
    """Downloads a model in a separate daemon thread, so that the process can end during a download."""

    def __init__(self, name: HubName, with_gpu: bool) -> None:
        self._name = name
        self._with_gpu = with_gpu
        self._loop = asyncio.get_running_loop()
        self._is_abandoned = threading.Event()
        self._percent = -1
        self.lines: asyncio.Queue[wire.PullProgress | None] = asyncio.Queue()
        """The lines about the progress, at most one for each percent, and None at the end."""
        self.error: Exception | None = None
        threading.Thread(target=self._run, name="llmd-pull", daemon=True).start()

    def abandon(self) -> None:
        self._is_abandoned.set()

    def _run(self) -> None:
        try:
            is_chosen = self._name.quantization or self._name.file
            free_bytes = None if is_chosen else memory_for_model(self._with_gpu)
            pull(self._name, free_bytes, Download(self._changed))
        except Exception as error:
            self.error = error
        self._call(self.lines.put_nowait, None)

    def _changed(self, download: Download) -> None:
        if self._is_abandoned.is_set():
            raise _Abandoned
        if download.percent() != self._percent:
            self._percent = download.percent()
            status = f"pulling {download.digest[7:19] or 'model'}"
            total = download.n_bytes_total
            line = wire.PullProgress(status, download.digest or None, total, min(download.n_bytes, total))
            self._call(self.lines.put_nowait, line)

    def _call(self, act: Callable[..., object], *values: object) -> None:
        with suppress(RuntimeError):  # the event loop is closed
            self._loop.call_soon_threadsafe(act, *values)


async def pull_model(request: web.Request) -> web.StreamResponse:
    if not request[FACTS].caller.is_admin:
        raise ApiError(
            "admin_required", "Only administrators can download models. Use an admin key or the unix socket."
        )
    async with in_time(request):
        asked = await body.read(request, wire.PullRequest)
    job = _Pull(_name_of(asked), request.app[STATE].config.gpu_layers != 0)
    try:
        return await _stream(request, job) if asked.stream is not False else await _complete(job)
    finally:
        job.abandon()


def _name_of(asked: wire.PullRequest) -> HubName:
    text = required("model", asked.model or asked.name)
    try:
        name = parse_hub_name(text)
    except ModelError as error:
        raise invalid_value("model", str(error)) from None
    if name is None:
        raise invalid_value("model", f"{text} is not on huggingface.co; write hf.co/OWNER/NAME[:QUANTIZATION]")
    return name


async def _complete(job: _Pull) -> web.Response:
    while await job.lines.get() is not None:
        pass
    if job.error is not None:
        raise _refusal(job.error)
    return respond(wire.PullProgress("success"))


async def _stream(request: web.Request, job: _Pull) -> web.StreamResponse:
    response = web.StreamResponse(headers=LINES.headers())
    await response.prepare(request)
    with suppress(ConnectionError):  # the client has disconnected
        await _write(response, wire.PullProgress("pulling manifest"))
        while (line := await job.lines.get()) is not None:
            await _write(response, line)
        if job.error is None:
            for status in _AFTER:
                await _write(response, wire.PullProgress(status))
        else:
            error = request[FACTS].error = _refusal(job.error)
            await response.write(ENVELOPE.event(error))
        await response.write_eof()
    return response


async def _write(response: web.StreamResponse, line: wire.PullProgress) -> None:
    await response.write(LINES.frame(msgspec.json.encode(line)))


def _refusal(error: Exception) -> ApiError:
    if isinstance(error, ModelError):
        return ApiError("model_unavailable", f"The model was not downloaded: {error}.")
    log.error("a download failed because of an error in llmd", exc_info=error)
    return ApiError("internal_error")
