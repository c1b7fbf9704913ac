"""The endpoints about the daemon's health, and /metrics. /live shows that the process is alive. /health shows that the
model is loaded. /ready shows that the daemon can serve requests.
"""

from __future__ import annotations

import os
from typing import Literal

from aiohttp import web

from ... import __version__
from ...core import limits
from ...core.errors import ApiError
from ...models.names import is_hub_name
from ..body import respond
from ..context import FACTS, STATE, State
from ..metrics import CONTENT_TYPE
from .health_wire import DownloadProgress, Health, HealthError, HealthErrorEnvelope, Liveness, Readiness

_LOADING = HealthErrorEnvelope(HealthError(503, "Loading model", "unavailable_error"))


async def live(_: web.Request) -> web.Response:
    return respond(Liveness(status="ok", version=__version__, pid=os.getpid()))


async def health(request: web.Request) -> web.Response:
    """Answers as llama-server does. Programs that start llama-server, such as llama-swap, ask /health until the status
    is 200. Only then do they send requests.
    """
    state = request.app[STATE]
    if state.loaded_model is not None:
        return respond(Health(status="ok"))
    answer = respond(_LOADING, status=503)
    answer.headers["Retry-After"] = str(state.loading.retry_after_s())
    return answer


def readiness(state: State) -> Readiness:
    if state.loaded_model is None:
        return _loading(state)
    seconds = state.loaded_model.heartbeat.stalled_for_s()
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


def _loading(state: State) -> Readiness:
    """Returns the answer of /ready while the model is downloaded or loads. The name inside the model's file is not
    known yet. So without --model-id, `model` is the name on the hub or the name of the file.
    """
    one = state.loading.download
    return Readiness(
        status="stopping" if state.is_stopping else "loading",
        model=state.config.model_id or _file_name(state.config.model),
        requests=state.admission.n_live,
        seconds_without_progress=0.0,
        loaded_per_mille=state.loading.per_mille(),
        seconds_loading=round(state.loading.seconds(), 3),
        download=DownloadProgress(one.name, one.n_bytes, one.n_bytes_total) if one.is_running else None,
    )


def _file_name(model: str) -> str:
    return model if is_hub_name(model) else os.path.basename(model)


async def ready(request: web.Request) -> web.Response:
    state = request.app[STATE]
    found = readiness(state)
    answer = respond(found, status=200 if found.status == "ready" else 503)
    if answer.status != 200:
        seconds = state.loading.retry_after_s() if found.status == "loading" else limits.RETRY_AFTER_S
        answer.headers["Retry-After"] = str(seconds)
    return answer


async def drain(request: web.Request) -> web.Response:
    """Refuses new requests, so that a router sends them to other nodes. llmd ends when the running answers have ended.
    Unlike after SIGTERM, no time limit cuts these answers.
    """
    state = request.app[STATE]
    if not request[FACTS].caller.is_admin:
        raise ApiError("admin_required", "Only administrators can drain llmd. Use an admin key or the unix socket.")
    state.drain()
    return respond(readiness(state))


async def metrics(request: web.Request) -> web.Response:
    state, caller = request.app[STATE], request[FACTS].caller
    shown = [owner for owner in state.metrics.owners if caller.is_admin or owner == caller.owner]
    names = {owner: name for owner in shown if (name := state.keys.name_of(owner)) is not None}
    body = state.metrics.render(state.engine, state.answers, readiness(state).status == "ready", names)
    return web.Response(body=body, headers={"Content-Type": CONTENT_TYPE})
