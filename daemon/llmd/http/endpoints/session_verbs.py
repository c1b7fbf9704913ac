"""/v1/sessions/{id}/...: fork, park, pin, rename."""

from __future__ import annotations

from aiohttp import web

from ...core import limits, session_key
from ...core.errors import ApiError, quoted
from ...core.shares import share_of
from ...engine.native import Status
from ...engine.wire import ALL_TOKENS, Fork, Park, Pin, Rename
from ...turns.user_starts import UserMessages
from .. import body
from ..body import respond
from ..context import STATE, State
from .sessions import check, current_session, resolve_target, uint32_of
from .wire import ForkRequest, PinRequest, RenameRequest

LAST_USER = "last_user"
TURN_PREFIX = "turn:"
AT_MAX = ALL_TOKENS - 1
_AT_EXPECTED = f"a count of tokens up to {AT_MAX}, last_user, or turn:N with N from 1 to {limits.UINT32_MAX}"


async def fork_session(request: web.Request) -> web.Response:
    state, parsed_body = request.app[STATE], await body.read(request, ForkRequest)
    owner, parent = resolve_target(request)
    name = name_for(parsed_body.session_id, "session_id", parent)
    at = fork_point(parsed_body.at, state.turns.by_user(owner, parent))
    reply = await state.engine.ask(Fork, owner, parent, name, at, parsed_body.replace)
    if reply.status == Status.EXISTS:
        raise exists(name, '"replace": true (llmctl: --replace) replaces it')
    check(parent, reply)
    return respond(current_session(state, owner, name))


def fork_point(at: int | str | None, by_user: UserMessages) -> int:
    """Returns the number of tokens that the fork begins with, or ALL_TOKENS. Raises ApiError naming the field."""
    if at is None:
        return ALL_TOKENS
    if isinstance(at, int) and 0 <= at <= AT_MAX:
        return at
    is_turn = isinstance(at, str) and at.startswith(TURN_PREFIX)
    number = uint32_of(str(at).removeprefix(TURN_PREFIX)) if is_turn else None
    if at != LAST_USER and not number:
        raise ApiError("invalid_value", f"at: {quoted(at)} is not {_AT_EXPECTED}.", "at")
    if not by_user.starts:
        raise ApiError(
            "invalid_value",
            "at: llmd does not know where the user's messages begin in this session; use a number of tokens.",
            "at",
        )
    turn = number or by_user.n
    if turn not in by_user.starts:
        known = ", ".join(str(number) for number in sorted(by_user.starts))
        raise ApiError("invalid_value", f"at: turn {quoted(turn)} is not known; known turns are {known}.", "at")
    return by_user.starts[turn]


async def park_session(request: web.Request) -> web.Response:
    state = request.app[STATE]
    owner, name = resolve_target(request)
    check(name, await state.engine.ask(Park, owner, name))
    return respond(current_session(state, owner, name))


async def pin_session(request: web.Request) -> web.Response:
    state, parsed_body = request.app[STATE], await body.read(request, PinRequest)
    owner, name = resolve_target(request)
    reply = await state.engine.ask(Pin, owner, name, parsed_body.pinned)
    if reply.status == Status.PINS:
        raise _pins_exhausted(state)
    check(name, reply)
    return respond(current_session(state, owner, name))


async def rename_session(request: web.Request) -> web.Response:
    state, parsed_body = request.app[STATE], await body.read(request, RenameRequest)
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
        f"pinned: at most {n_max} branches can be pinned, {share} of them by one owner; unpin a session first.",
        "pinned",
    )


def exists(name: str, advice: str) -> ApiError:
    return ApiError("session_exists", f"session_id: a session {quoted(name)} exists already; {advice}.", "session_id")


def name_for(value: str, param: str, old: str | None = None) -> str:
    """Returns the id of a session. Raises ApiError if it is invalid, or the same as `old`."""
    if not session_key.is_valid(value):
        raise session_key.invalid(value, param)
    if value == old:
        raise ApiError("invalid_value", f"{param}: the session has this id already.", param)
    return value
