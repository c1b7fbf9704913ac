"""Puts the daemon together: engine, state, routes. What is opened here is closed here."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator
from pathlib import Path

from aiohttp import web

from . import history_file, limits, native, systemd
from .access import KeyRing, read_keys
from .api.boundary import add_cors_headers, boundary
from .api.context import STATE, State
from .api.routes import add_routes
from .engine import Engine
from .engine_open import EngineOptions
from .generation import CancelReason, Generation
from .history import Histories
from .logs import fields
from .metrics import Metrics
from .options import Config
from .progress import Progress
from .turns import Turns

log = logging.getLogger("llmd")


def create_app(config: Config) -> web.Application:
    """The application; starting it loads the model. Reads the files that the configuration names."""
    app = web.Application(middlewares=[boundary], client_max_size=config.body_limit)
    wanted = engine_options(config)
    keys = read_keys(config.api_key_file) if config.api_key_file else KeyRing()
    app.on_response_prepare.append(add_cors_headers)
    add_routes(app)

    async def engine(app: web.Application) -> AsyncIterator[None]:
        opened = await Engine.open(wanted)
        app[STATE] = State(
            config=config,
            engine=opened,
            keys=keys,
            metrics=Metrics(),
            progress=Progress(opened.heartbeat),
            turns=Turns(opened.page),
            model_id=config.model_id or opened.info.name,
            created=int(time.time()),
            histories=await histories_of(config, opened),
        )
        yield
        await opened.stop()
        await write_histories(app[STATE])
        await opened.close()

    app.cleanup_ctx.append(engine)
    app.cleanup_ctx.append(watchdog)
    return app


def runner_of(app: web.Application) -> web.AppRunner:
    """What serves the application: handlers of clients that have gone are cancelled."""
    return web.AppRunner(
        app,
        handle_signals=False,
        handler_cancellation=True,
        access_log=None,
        keepalive_timeout=limits.KEEPALIVE_CONNECTION_S,
        shutdown_timeout=limits.STOP_GRACE_S,
    )


async def histories_of(config: Config, engine: Engine) -> Histories:
    """With what the daemon before this one kept."""
    histories, info = Histories(), engine.info
    if config.state_dir is not None:
        path = history_file.path_of(config.state_dir, info.fingerprint)
        await asyncio.to_thread(history_file.take, path, histories, info.fingerprint, info.n_vocab)
    return histories


async def write_histories(state: State) -> None:
    """When no more answers come, and the state directory is still this daemon's own."""
    if state.config.state_dir is not None:
        fingerprint = state.engine.info.fingerprint
        path = history_file.path_of(state.config.state_dir, fingerprint)
        await asyncio.to_thread(history_file.write, path, state.histories, fingerprint)


def engine_options(config: Config) -> EngineOptions:
    return EngineOptions(
        model=config.model,
        page_name=native.segment_name(config.socket),
        chat_template=_template(config.chat_template_file),
        n_ctx=config.ctx_size,
        n_sessions=config.max_sessions,
        n_scratch=config.scratch_sessions,
        kv_bytes_max=config.kv_memory,
        capacity_policy=config.capacity_policy,
        n_parked_max=config.max_parked,
        timelines_max=config.session_timelines,
        parked_bytes_max=config.park_memory,
        checkpoint_bytes_max=config.checkpoint_memory,
        checkpoint_every=config.checkpoint_every,
        idle_s_max=config.session_idle_time,
        state_dir=str(config.state_dir) if config.state_dir is not None else None,
        n_threads=config.threads,
        n_gpu_layers=config.gpu_layers,
        gap_ms_target=config.gap_target_ms,
    )


def _template(path: Path | None) -> str | None:
    return path.read_text("utf-8") if path is not None else None


async def watchdog(app: web.Application) -> AsyncIterator[None]:
    """Feeds systemd's watchdog, as long as the decode thread makes progress."""
    interval = systemd.watchdog_interval_s()
    feeding = asyncio.create_task(_feed(Progress(app[STATE].engine.heartbeat), interval)) if interval else None
    yield
    if feeding is not None:
        feeding.cancel()


async def _feed(progress: Progress, interval_s: float) -> None:
    while True:
        if progress.seconds_without() == 0:
            systemd.notify("WATCHDOG=1")
        await asyncio.sleep(interval_s)


async def stop_serving(state: State) -> None:
    """Refuses new work, lets running requests go on until the deadline, then cancels them."""
    state.is_stopping = True
    engine = state.engine
    systemd.notify("STOPPING=1")
    log.info("stopping", extra=fields(requests=engine.n_live, timeout_s=state.config.shutdown_timeout))
    if await _idle_within(engine, state.config.shutdown_timeout):
        return
    log.warning("cancelling what still runs", extra=fields(requests=engine.n_live))
    for listener in engine.live():
        if isinstance(listener, Generation):
            listener.cancel(CancelReason.SHUTDOWN)
    await _idle_within(engine, limits.STOP_GRACE_S)


async def _idle_within(engine: Engine, seconds: float) -> bool:
    try:
        async with asyncio.timeout(seconds):
            await engine.idle()
    except TimeoutError:
        return False
    return True
