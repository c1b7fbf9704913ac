"""Puts the daemon together: engine, state, routes. Everything that is opened here is closed here."""

from __future__ import annotations

import asyncio
import logging
import sqlite3
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import cast

from aiohttp import web

from .answers import stored
from .answers.database import Database, path_of
from .answers.memory import AnswerMemory
from .answers.stored import SavedAnswers
from .core import limits
from .core.generation_request import HistoryMode
from .dialects.responses import store as response_store
from .dialects.responses.store import STORE, ResponseStore
from .engine import native
from .engine.engine import Engine
from .engine.generation import CancelReason, Generation
from .engine.loader import DaemonEngineLoader, EngineLoader
from .http.access import KeyFileError, KeyRing, keys_of
from .http.boundary import add_headers, boundary
from .http.connections import Runner
from .http.context import STATE, LoadedModel, State
from .http.metrics import Metrics
from .http.receive import BODIES, Bodies
from .pipeline.services import Services
from .process import systemd
from .process.config_table import Config
from .process.logs import fields
from .process.progress import Heartbeat, Loading
from .routes import add_routes
from .session_follower import SessionFollower
from .turns.log import TurnLog

log = logging.getLogger("llmd")

OPENING = web.AppKey("opening", asyncio.Task[None])
"""Completes when the model is loaded, or with the EngineError that says why it is not."""


def create_app(config: Config, keys: KeyRing, loader: EngineLoader | None = None) -> web.Application:
    """Returns the application. Starting it begins to load the model, unless that has already begun. Until the model is
    loaded, only public endpoints are answered.
    """
    app = web.Application(middlewares=[boundary])
    loader = loader or DaemonEngineLoader(config)
    warn_of_guessable(keys)
    app[STATE] = State(
        config=config,
        keys=keys,
        metrics=Metrics(),
        loading=Loading(native.loading_per_mille),
        created=int(time.time()),
    )
    app.on_response_prepare.append(add_headers)
    add_routes(app)
    app[BODIES] = Bodies()

    async def model(app: web.Application) -> AsyncIterator[None]:
        state = app[STATE]
        opening = app[OPENING] = asyncio.create_task(open_model(state, loader, app[STORE]))
        telling = asyncio.create_task(tell_systemd(state, opening))
        yield
        opening.cancel()
        await asyncio.wait([opening])
        if state.loaded_model is not None:
            await save(state)
        telling.cancel()
        if state.loaded_model is not None:
            await state.engine.close()

    app.cleanup_ctx.append(model)
    return app


async def open_model(state: State, loader: EngineLoader, responses: ResponseStore) -> None:
    """Loads the model. If this is cancelled, the loading thread continues, because only the end of the process stops
    it. A cancellation while the state directory is being read waits, because the stop must write back what was read.
    """
    engine = await Engine.open(loader)
    taking = asyncio.create_task(take_kept(state, engine, responses))
    try:
        await asyncio.shield(taking)
    finally:
        await asyncio.wait([taking])


async def take_kept(state: State, engine: Engine, responses: ResponseStore) -> None:
    """Adds to the state what the previous daemon left in the state directory."""
    answers, directory, fingerprint = AnswerMemory(), state.config.state_dir, engine.info.fingerprint
    database: Database | None = None
    try:
        if directory is not None:
            database = await asyncio.to_thread(Database, path_of(directory, fingerprint), fingerprint)
            await asyncio.to_thread(restore, database, engine, answers, responses, state.n_owners)
            stored.follow(answers, database)
            response_store.follow(responses, database)
    except BaseException:
        if database is not None:
            await asyncio.to_thread(database.close)
        await engine.close()
        raise
    state.loaded_model = LoadedModel(
        services=Services(
            engine=engine,
            answers=answers,
            turns=TurnLog(engine.session_table),
            history=cast(HistoryMode, state.config.history),
            scratch_reuse=state.config.scratch_reuse,
        ),
        heartbeat=Heartbeat(engine.heartbeat),
        model_id=state.config.model_id or engine.info.name,
        database=database,
        saved_answers=SavedAnswers(database, engine.info.n_vocab) if database is not None else None,
    )
    engine.watcher = SessionFollower(state.answers, state.turns, state.is_in_use)
    state.use_keys(state.keys)


def runner_of(app: web.Application) -> web.AppRunner:
    """Returns the server of the application. It cancels the handlers of clients that have left."""
    return Runner(
        app,
        shutdown_timeout=limits.STOP_GRACE_S,
        access_log=None,
        keepalive_timeout=limits.KEEPALIVE_CONNECTION_S,
        lingering_time=limits.LINGER_S,
        max_line_size=limits.HEAD_LINE_BYTES_MAX,
        max_field_size=limits.HEAD_LINE_BYTES_MAX,
        max_headers=limits.HEADERS_MAX,
        read_bufsize=limits.READ_BUFFER_BYTES,
        auto_decompress=False,
    )


def restore(database: Database, engine: Engine, answers: AnswerMemory, responses: ResponseStore, n_owners: int) -> None:
    """Fills memory and store with the rows that the previous daemon wrote. Blocks."""
    saved = [(one.owner, one.label) for one in engine.saved()]
    try:
        stored.restore(answers, database, engine.info.n_vocab)
        response_store.restore(responses, database, n_owners)
        SavedAnswers(database, engine.info.n_vocab).sweep(saved)
    except sqlite3.Error as error:
        log.warning("cannot read the answers of the previous daemon", extra=fields(reason=str(error)))


# --- keys ------------------------------------------------------------------------------------------------------------


def warn_of_guessable(keys: KeyRing) -> None:
    if short := keys.guessable():
        log.warning(
            "keys of fewer than %d characters can be guessed: %s", limits.KEY_CHARS_MIN_ADVISED, ", ".join(short)
        )


def reload_keys(state: State) -> None:
    """Reads the key file again. Keys that are no longer in it are refused from the next request on. A file that cannot
    be used changes nothing.
    """
    path = state.config.api_key_file
    if path is None:
        log.info("SIGHUP: --api-key-file is not set, so llmd has no keys to reload")
        return
    try:
        keys = keys_of(path, state.config.state_dir)
    except KeyFileError as error:
        log.error("the keys were not reloaded: %s", error)
        return
    warn_of_guessable(keys)
    state.use_keys(keys)
    log.info("keys reloaded", extra=fields(keys=len(state.keys), owners=state.keys.n_owners))


# --- life ------------------------------------------------------------------------------------------------------------


async def save(state: State) -> None:
    """Ends serving and writes sessions to the state directory; answers and responses are there already."""
    telling = asyncio.create_task(tell_saving(state))
    try:
        await state.engine.stop()
        if (database := state.loaded.database) is not None:
            await database.finish()
    finally:
        telling.cancel()


async def tell_saving(state: State) -> None:
    """Extends systemd's timeout while the engine's counters change, since every kind of its work is counted."""
    before: dict[str, int] = {}
    while True:
        counters = state.engine.session_table.counters()
        status = f"STATUS=Saving sessions: {counters.get('sessions_saved_total', 0)} of {counters['sessions_named']}"
        systemd.notify(status, *systemd.more_time(limits.SAVE_PATIENCE_S, counters != before))
        before = counters
        await asyncio.sleep(limits.SAVE_PROGRESS_S)


async def tell_systemd(state: State, opening: asyncio.Task[None]) -> None:
    """Reports how much of the model is loaded, then feeds the watchdog as long as the decode thread makes progress."""
    loaded = -1
    while not opening.done():
        before, loaded = loaded, state.loading.per_mille()
        status = f"STATUS=Loading {Path(state.config.model).name}: {loaded // 10} %"
        systemd.notify(status, *systemd.more_time(limits.LOAD_PATIENCE_S, loaded > before))
        await asyncio.wait([opening], timeout=limits.LOAD_PROGRESS_S)
    interval = systemd.watchdog_interval_s()
    if state.loaded_model is None or interval is None:
        return
    heartbeat = Heartbeat(state.engine.heartbeat)
    while True:
        if heartbeat.stalled_for_s() == 0:
            systemd.notify("WATCHDOG=1")
        await asyncio.sleep(interval)


async def stop_serving(state: State) -> None:
    """Refuses new requests and requests that the engine does not have yet. Running requests continue until the deadline
    and are then cancelled.
    """
    state.stop()
    if state.loaded_model is None:
        systemd.notify("STOPPING=1")
        log.info("stopping", extra=fields(seconds_loading=round(state.loading.seconds())))
        return
    engine = state.engine
    patience = state.config.shutdown_timeout + limits.STOP_GRACE_S + limits.SAVE_PATIENCE_S
    systemd.notify("STOPPING=1", f"STATUS=Waiting for {engine.n_live} requests", *systemd.more_time(patience))
    log.info("stopping", extra=fields(requests=engine.n_live, timeout_s=state.config.shutdown_timeout))
    if await _idle_within(engine, state.config.shutdown_timeout):
        return
    log.warning("cancelling the requests that still run", extra=fields(requests=engine.n_live))
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
