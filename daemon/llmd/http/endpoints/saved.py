"""/v1/saved, and save and load of /v1/sessions/{id}: sessions under a name in the state directory."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from typing import Any

from aiohttp import web

from ...answers.stored import SavedAnswers
from ...core import limits, session_key
from ...core.errors import ApiError, quoted
from ...engine.native import SAVED_MAX, SAVED_PER_OWNER_MAX, Status
from ...engine.wire import Load, Reply, Save, Unsave
from .. import body
from ..body import respond
from ..context import FACTS, STATE, State
from .session_verbs import exists, name_for
from .sessions import check, current_session, failure, may_see, owner_in_query, resolve_target
from .wire import LoadRequest, Saved, SavedDeleted, SavedList, SaveRequest, SessionSaved

log = logging.getLogger("llmd.http")


async def save_session(request: web.Request) -> web.Response:
    state, parsed_body = request.app[STATE], await body.read(request, SaveRequest)
    owner, name = resolve_target(request)
    saved_answers = _saved_answers_of(state)
    label = _label(parsed_body.name)
    saved = state.answers.saved(owner, name)

    async def save_both() -> Reply:
        reply = await state.engine.ask(Save, owner, name, label)
        if reply.status == Status.OK:
            await saved_answers.write(owner, label, saved)
        return reply

    reply = await _completed(save_both())
    if reply.status == Status.NOT_FOUND:
        raise _nothing_to_save(state, owner, name)
    if reply.status == Status.SAVED_FULL:
        raise ApiError(
            "saved_full",
            f"name: one owner may save {SAVED_PER_OWNER_MAX} sessions and all owners {SAVED_MAX}; remove one with "
            "DELETE /v1/saved/NAME.",
            "name",
        )
    check(name, reply)
    return respond(SessionSaved(name, label, reply.n_tokens))


async def load_session(request: web.Request) -> web.Response:
    state, parsed_body = request.app[STATE], await body.read(request, LoadRequest)
    saved_answers = _saved_answers_of(state)
    name = name_for(request.match_info["id"], "id")
    label = _label(parsed_body.name)
    owner = _resolve_owner(request)
    is_saved = any((one.owner, one.label) == (owner, label) for one in state.engine.saved())
    if is_saved and not parsed_body.replace and state.engine.page.sessions_named(name, owner):
        raise exists(name, '"replace": true (llmctl: --replace) replaces it')

    async def load_both() -> Reply:
        reply = await state.engine.ask(Load, owner, name, label)
        if reply.status == Status.OK:
            saved = await asyncio.to_thread(saved_answers.read, owner, label)
            if saved is not None:
                state.answers.restore(owner, name, saved)
        return reply

    reply = await _completed(load_both())
    _check_label(label, reply)
    return respond(current_session(state, owner, name))


async def list_saved(request: web.Request) -> web.Response:
    state, caller, owner = request.app[STATE], request[FACTS].caller, owner_in_query(request)
    seen = [one for one in state.engine.saved() if may_see(caller, one.owner) and owner in (None, one.owner)]
    seen.sort(key=lambda one: one.saved_ms, reverse=True)
    data = [
        Saved(one.label, one.owner, state.keys.name_of(one.owner), one.n_tokens, one.n_bytes, one.saved_ms)
        for one in seen
    ]
    return respond(SavedList(data, SAVED_PER_OWNER_MAX, SAVED_MAX))


async def delete_saved(request: web.Request) -> web.Response:
    state, saved_answers = request.app[STATE], _saved_answers_of(request.app[STATE])
    label = _label(request.match_info["id"])
    owner = _resolve_owner(request)

    async def delete_both() -> Reply:
        """Removes the answers last: if the session cannot be removed, it keeps them."""
        reply = await state.engine.ask(Unsave, owner, label)
        if reply.status == Status.OK:
            await saved_answers.write(owner, label, None)
        return reply

    reply = await _completed(delete_both())
    _check_label(label, reply)
    return respond(SavedDeleted(label))


async def _completed(work: Coroutine[Any, Any, Reply]) -> Reply:
    """Runs the work to its end even if its client goes: a session and its answers are saved, loaded and removed
    together. An error that no client is left to get is logged."""
    task = asyncio.create_task(work)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        task.add_done_callback(_log_error)
        raise


def _log_error(task: asyncio.Task[Reply]) -> None:
    error = None if task.cancelled() else task.exception()
    if error is not None:
        log.warning("a command failed after its client had gone", exc_info=error)


def _nothing_to_save(state: State, owner: int, name: str) -> ApiError:
    """The error for a session that does not exist, or is empty."""
    current_session(state, owner, name)
    return ApiError("nothing_to_save", None, "id")


def _label(name: str) -> str:
    if not session_key.is_valid(name):
        raise ApiError(
            "invalid_value",
            f"name: {quoted(name)} is not a valid name for a saved session: use 1 to {limits.SESSION_ID_CHARS_MAX} "
            "printable ASCII characters without spaces.",
            "name",
        )
    return name


def _resolve_owner(request: web.Request) -> int:
    caller, owner = request[FACTS].caller, owner_in_query(request)
    owner = caller.owner if owner is None else owner
    if not may_see(caller, owner):
        raise ApiError("admin_required", None, "owner")
    return owner


def _check_label(label: str, reply: Reply) -> None:
    if reply.status == Status.NOT_FOUND:
        raise ApiError("snapshot_not_found", f"No session is saved as {quoted(label)}.", "name")
    if reply.status != Status.OK:
        raise failure(reply, "name")


def _saved_answers_of(state: State) -> SavedAnswers:
    if state.saved_answers is None:
        raise ApiError("no_state_dir")
    return state.saved_answers
