"""/health (the process is alive), /ready (it can serve), /metrics."""

from __future__ import annotations

import os
from typing import Literal

from aiohttp import web

from .. import __version__, limits
from ..metrics import CONTENT_TYPE
from ..wire.sessions import Health, Readiness
from .context import STATE, State
from .respond import respond


async def health(_: web.Request) -> web.Response:
    return respond(Health(status="ok", version=__version__, pid=os.getpid()))


def readiness(state: State) -> Readiness:
    seconds = state.progress.seconds_without()
    status: Literal["ready", "stalled", "stopping"] = "ready"
    if state.is_stopping:
        status = "stopping"
    elif seconds >= limits.STALLED_AFTER_S:
        status = "stalled"
    return Readiness(
        status=status,
        model=state.model_id,
        requests=state.engine.n_live,
        seconds_without_progress=round(seconds, 3),
    )


async def ready(request: web.Request) -> web.Response:
    found = readiness(request.app[STATE])
    return respond(found, status=200 if found.status == "ready" else 503)


async def metrics(request: web.Request) -> web.Response:
    state = request.app[STATE]
    body = state.metrics.render(state.engine, readiness(state).status == "ready")
    return web.Response(body=body, headers={"Content-Type": CONTENT_TYPE})
