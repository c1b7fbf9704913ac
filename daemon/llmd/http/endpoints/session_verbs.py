"""The endpoints /v1/sessions/{id}/VERB for the verbs fork, park, pin, rename, save and load. Also the endpoint
/v1/saved, which lists and removes the saved sessions in the state directory.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from typing import Any

from aiohttp import web

from ...answers.stored import SavedAnswers
from ...core import limits, session_key
from ...core.errors import ApiError, invalid_value, quoted
from ...core.shares import share_of
from ...engine.native import SAVED_MAX, SAVED_PER_OWNER_MAX, Status
from ...engine.wire import ALL_TOKENS, Fork, Load, Park, Pin, Rename, Reply, Save, Unsave
from ...turns.user_starts import UserMessages
from .. import body
from ..body import respond
from ..context import FACTS, STATE, State
from . import wire
from .sessions import check, current_session, failure, may_see, owner_in_query, resolve_target, uint32_of

log = logging.getLogger("llmd.http")

LAST_USER = "last_user"
TURN_PREFIX = "turn:"
AT_MAX = ALL_TOKENS - 1
_AT_EXPECTED = f"a count of tokens up to {AT_MAX}, last_user, or turn:N with N from 1 to {limits.UINT32_MAX}"


async def fork_session(request: web.Request) -> web.Response:
    state, parsed_body = request.app[STATE], await body.read(request, wire.ForkRequest)
    owner, parent = resolve_target(request)
    name = name_for(parsed_body.session_id, "session_id", parent)
    at = fork_point(parsed_body.at, state.turns.by_user(owner, parent))
    reply = await state.engine.ask(Fork, owner, parent, name, at, parsed_body.replace)
    if reply.status == Status.EXISTS:
        raise exists(name, '"replace": true (llmctl: --replace) replaces it')
    check(parent, reply)
    return respond(current_session(state, owner, name))


def fork_point(at: int | str | None, by_user: UserMessages) -> int:
    """Returns how many of the session's first tokens the new session gets, or ALL_TOKENS. `at` is the member of the
    request that says where to fork. `by_user` says where the user's messages begin in the session. Raises ApiError if
    `at` is not valid.
    """
    if at is None:
        return ALL_TOKENS
    if isinstance(at, int) and 0 <= at <= AT_MAX:
        return at
    is_turn = isinstance(at, str) and at.startswith(TURN_PREFIX)
    number = uint32_of(str(at).removeprefix(TURN_PREFIX)) if is_turn else None
    if at != LAST_USER and not number:
        raise invalid_value("at", f"{quoted(at)} is not {_AT_EXPECTED}")
    if not by_user.starts:
        raise invalid_value(
            "at", "llmd does not know where the user's messages begin in this session; give a number of tokens instead"
        )
    turn = number or by_user.n
    if turn not in by_user.starts:
        known = ", ".join(str(number) for number in sorted(by_user.starts))
        raise invalid_value(
            "at", f"llmd does not know where turn {quoted(turn)} begins; it knows this for the turns {known}"
        )
    return by_user.starts[turn]


async def park_session(request: web.Request) -> web.Response:
    state = request.app[STATE]
    owner, name = resolve_target(request)
    check(name, await state.engine.ask(Park, owner, name))
    return respond(current_session(state, owner, name))


async def pin_session(request: web.Request) -> web.Response:
    state, parsed_body = request.app[STATE], await body.read(request, wire.PinRequest)
    owner, name = resolve_target(request)
    reply = await state.engine.ask(Pin, owner, name, parsed_body.pinned)
    if reply.status == Status.PINS:
        raise _pins_exhausted(state)
    check(name, reply)
    return respond(current_session(state, owner, name))


async def rename_session(request: web.Request) -> web.Response:
    state, parsed_body = request.app[STATE], await body.read(request, wire.RenameRequest)
    owner, old = resolve_target(request)
    name = name_for(parsed_body.session_id, "session_id", old)
    reply = await state.engine.ask(Rename, owner, old, name)
    if reply.status == Status.EXISTS:
        raise exists(name, "close it first")
    check(old, reply)
    return respond(current_session(state, owner, name))


def _pins_exhausted(state: State) -> ApiError:
    n_max = state.engine.info.n_pins_max
    share = share_of(n_max, state.n_owners)
    return ApiError(
        "pins_exhausted",
        f"pinned: at most {n_max} branches can be pinned, and at most {share} by one owner. Unpin a session first.",
        "pinned",
    )


def exists(name: str, advice: str) -> ApiError:
    return ApiError("session_exists", f"session_id: a session {quoted(name)} exists already; {advice}.", "session_id")


def name_for(value: str, param: str, old: str | None = None) -> str:
    """Returns `value`, the id for a session, which the client sent as the parameter `param`. Raises ApiError if the id
    is invalid, or the same as `old`.
    """
    session_key.valid_id(param, value)
    if value == old:
        raise invalid_value(param, "the session has this id already")
    return value


# --- saved sessions ---------------------------------------------------------------------------------------------------


async def save_session(request: web.Request) -> web.Response:
    state, parsed_body = request.app[STATE], await body.read(request, wire.SaveRequest)
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
        current_session(state, owner, name)  # raises ApiError if the session does not exist
        raise ApiError("nothing_to_save", None, "id")
    if reply.status == Status.SAVED_FULL:
        raise ApiError(
            "saved_full",
            f"name: one owner can save {SAVED_PER_OWNER_MAX} sessions, and all owners together {SAVED_MAX}. Remove a "
            "saved session with DELETE /v1/saved/NAME.",
            "name",
        )
    check(name, reply)
    return respond(wire.SessionSaved(name, label, reply.n_tokens))


async def load_session(request: web.Request) -> web.Response:
    state, parsed_body = request.app[STATE], await body.read(request, wire.LoadRequest)
    saved_answers = _saved_answers_of(state)
    name = name_for(request.match_info["id"], "id")
    label = _label(parsed_body.name)
    owner = _resolve_owner(request)
    is_saved = any((one.owner, one.label) == (owner, label) for one in state.engine.saved())
    if is_saved and not parsed_body.replace and state.engine.session_table.sessions_named(name, owner):
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
        wire.Saved(one.label, one.owner, state.keys.name_of(one.owner), one.n_tokens, one.n_bytes, one.saved_ms)
        for one in seen
    ]
    return respond(wire.SavedList(data, SAVED_PER_OWNER_MAX, SAVED_MAX))


async def delete_saved(request: web.Request) -> web.Response:
    state, saved_answers = request.app[STATE], _saved_answers_of(request.app[STATE])
    label = _label(request.match_info["id"])
    owner = _resolve_owner(request)

    async def delete_both() -> Reply:
        """Removes the saved session first and its answers afterwards. So if the session cannot be removed, it still has
        its answers.
        """
        reply = await state.engine.ask(Unsave, owner, label)
        if reply.status == Status.OK:
            await saved_answers.write(owner, label, None)
        return reply

    reply = await _completed(delete_both())
    _check_label(label, reply)
    return respond(wire.SavedDeleted(label))


async def _completed(work: Coroutine[Any, Any, Reply]) -> Reply:
    """Completes the work even if the client disconnects, so that a session and its answers are always saved, loaded or
    removed together. Logs the error if the work fails after the client has disconnected.
    """
    task = asyncio.create_task(work)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        task.add_done_callback(_log_error)
        raise


def _log_error(task: asyncio.Task[Reply]) -> None:
    error = None if task.cancelled() else task.exception()
    if error is not None:
        log.warning("a command on a session failed after its client had disconnected", exc_info=error)


def _label(name: str) -> str:
    if not session_key.is_valid(name):
        raise invalid_value(
            "name",
            f"{quoted(name)} is not a valid name for a saved session: use 1 to {limits.SESSION_ID_CHARS_MAX} "
            "printable ASCII characters without spaces",
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
    if state.loaded.saved_answers is None:
        raise ApiError("no_state_dir")
    return state.loaded.saved_answers
