"""Builds the HTTP application of the daemon. At the start it loads the model and adds the routes. At the end it saves
the sessions and closes the engine and the database.
"""

from __future__ import annotations

import asyncio
import logging
import sqlite3
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import TYPE_CHECKING, cast

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
from .http.context import OPENING, STATE, LoadedModel, State
from .http.loading import wait_for_model
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

if TYPE_CHECKING:
    from .http.traces import Traces

log = logging.getLogger("llmd")


def create_app(
    config: Config, keys: KeyRing, loader: EngineLoader | None = None, traces: Traces | None = None
) -> web.Application:
    """Returns the application. When the application starts, `loader` begins to load the model, unless `loader.begin()`
    was called before. Until the model is loaded, only public endpoints such as /ready answer. Requests to other
    endpoints wait (http/loading.py) or get status 503.
    """
    app = web.Application(middlewares=[boundary, *([traces.middleware] if traces else []), wait_for_model])
    loader = loader or DaemonEngineLoader(config)
    warn_of_guessable(keys)
    app[STATE] = State(
        config=config,
        keys=keys,
        metrics=Metrics(),
        loading=Loading(native.loading_per_mille, download=loader.download),
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

    if traces is not None:  # closed after the engine, because the engine's last events end the last spans of traces
        app.on_cleanup.append(lambda _: traces.close())
    app.cleanup_ctx.append(model)
    return app


async def open_model(state: State, loader: EngineLoader, responses: ResponseStore) -> None:
    """Loads the model, and then restores the answers and responses in the state directory. If this task is cancelled
    while the model loads, the loading thread continues. Only the end of the process can stop that thread. If this task
    is cancelled while it restores them, it first finishes restoring. Otherwise `state` would be incomplete, and the
    daemon would neither save the sessions nor close the engine.
    """
    engine = await Engine.open(loader)
    taking = asyncio.create_task(take_kept(state, engine, responses, loader.model))
    try:
        await asyncio.shield(taking)
    finally:
        await asyncio.wait([taking])


async def take_kept(state: State, engine: Engine, responses: ResponseStore, path: str) -> None:
    """Restores the answers and responses that the previous daemon left in the state directory, and sets
    `state.loaded_model`.
    """
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
        path=path,
        database=database,
        saved_answers=SavedAnswers(database, engine.info.n_vocab) if database is not None else None,
    )
    engine.watcher = SessionFollower(state.answers, state.turns, state.is_in_use)
    state.use_keys(state.keys)


def runner_of(app: web.Application) -> web.AppRunner:
    """Returns the HTTP server of the application. If a client disconnects, the server cancels the handler of its
    request.
    """
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
    """Reads the database of the previous daemon. Adds its rows of answers to `answers`, and its rows of responses to
    `responses`. Deletes rows of saved sessions that no longer exist. Blocks the calling thread.
    """
    saved = [(one.owner, one.label) for one in engine.saved()]
    try:
        stored.restore(answers, database, engine.info.n_vocab)
        response_store.restore(responses, database, n_owners)
        SavedAnswers(database, engine.info.n_vocab).sweep(saved)
    except sqlite3.Error as error:
        log.warning("cannot read the answers that the previous daemon stored", extra=fields(reason=str(error)))


# --- API keys --------------------------------------------------------------------------------------------------------


def warn_of_guessable(keys: KeyRing) -> None:
    if short := keys.guessable():
        log.warning(
            "API keys of fewer than %d characters can be guessed; replace the keys of: %s",
            limits.KEY_CHARS_MIN_ADVISED,
            ", ".join(short),
        )


def reload_keys(state: State) -> None:
    """Reads the key file again. A key that was removed from the file is refused from the next request on. If the file
    cannot be read or has an error, the old keys stay valid.
    """
    path = state.config.api_key_file
    if path is None:
        log.info("SIGHUP has no effect: --api-key-file is not set, so llmd has no API keys to reload")
        return
    try:
        keys = keys_of(path, state.config.state_dir)
    except KeyFileError as error:
        log.error("the API keys were not reloaded, and the old ones stay valid: %s", error)
        return
    warn_of_guessable(keys)
    state.use_keys(keys)
    log.info("API keys reloaded", extra=fields(keys=len(state.keys), owners=state.keys.n_owners))


# --- start and stop --------------------------------------------------------------------------------------------------


async def save(state: State) -> None:
    """Stops the engine, which writes the sessions to the state directory, and closes the database after its last
    writes. Most answers and responses are in the database already, because each of them is written as soon as it is
    complete.
    """
    telling = asyncio.create_task(tell_saving(state))
    try:
        await state.engine.stop()
        if (database := state.loaded.database) is not None:
            await database.finish()
    finally:
        telling.cancel()


async def tell_saving(state: State) -> None:
    """Reports to systemd how many sessions are saved. Extends systemd's timeout for the stop whenever a counter of the
    engine has changed. A changed counter shows progress.
    """
    before: dict[str, int] = {}
    while True:
        counters = state.engine.session_table.counters()
        status = f"STATUS=Saving sessions: {counters.get('sessions_saved_total', 0)} of {counters['sessions_named']}"
        systemd.notify(status, *systemd.more_time(limits.SAVE_PATIENCE_S, counters != before))
        before = counters
        await asyncio.sleep(limits.SAVE_PROGRESS_S)


async def tell_systemd(state: State, opening: asyncio.Task[None]) -> None:
    """Reports to systemd how much of the model is downloaded and loaded. When the model is loaded, notifies systemd's
    watchdog as long as the decode thread makes progress.
    """
    progress = -1
    while not opening.done():
        before = progress
        progress, status = state.loading.progress(Path(state.config.model).name)
        systemd.notify(f"STATUS={status}", *systemd.more_time(limits.LOAD_PATIENCE_S, progress > before))
        await asyncio.wait([opening], timeout=limits.LOAD_PROGRESS_S)
    interval = systemd.watchdog_interval_s()
    if state.loaded_model is None or interval is None:
        return
    heartbeat = Heartbeat(state.engine.heartbeat)
    while True:
        if heartbeat.stalled_for_s() == 0:
            systemd.notify("WATCHDOG=1")
        await asyncio.sleep(interval)


async def leave(state: State, signaled: asyncio.Event) -> None:
    """Waits until the daemon is asked to stop. After POST /v1/drain, also waits until the running requests have ended.
    A signal ends both waits.
    """
    await state.leaving.wait()
    if signaled.is_set():
        return
    log.info("draining", extra=fields(requests=state.engine.n_live))
    waiting = [asyncio.create_task(state.engine.idle()), asyncio.create_task(signaled.wait())]
    await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
    for task in waiting:
        task.cancel()


async def stop_serving(state: State) -> None:
    """Refuses new requests, and requests that have not reached the engine. Requests that the engine already processes
    continue. Those that still run after --shutdown-timeout are cancelled.
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
