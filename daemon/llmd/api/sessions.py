"""/v1/sessions: list, show, reset, close. Reading goes past the decode thread, to the shared page."""

from __future__ import annotations

from aiohttp import web

from ..access import Caller
from ..errors import ApiError, code_of_status, shown
from ..native import REASON_TEXTS, REASON_WORDS, STATE_WORDS, STATUS_WORDS, SessionView, Status
from ..wire.engine import Reply
from ..wire.sessions import LastStart, Places, Session, SessionDeleted, SessionList
from .context import FACTS, STATE, State
from .respond import respond


async def list_sessions(request: web.Request) -> web.Response:
    state = request.app[STATE]
    views = [view for view in state.engine.page.sessions() if view.name]
    own = [view for view in views if _may_see(request[FACTS].caller, view)]
    own.sort(key=lambda view: view.used_ms, reverse=True)
    info = state.engine.info
    places = Places(
        named=info.n_sessions,
        named_used=len(views),
        scratch=info.n_scratch,
        policy=state.config.capacity_policy,
    )
    return respond(SessionList([_session(state, view) for view in own], places))


async def show_session(request: web.Request) -> web.Response:
    state = request.app[STATE]
    return respond(_session(state, _find(request)))


async def reset_session(request: web.Request) -> web.Response:
    state = request.app[STATE]
    view = _find(request)
    _check(view, await state.engine.reset(view.owner, view.name))
    return respond(_session(state, state.engine.page.session(view.slot) or view))


async def delete_session(request: web.Request) -> web.Response:
    state = request.app[STATE]
    view = _find(request)
    _check(view, await state.engine.close_session(view.owner, view.name))
    return respond(SessionDeleted(view.name))


def _may_see(caller: Caller, view: SessionView) -> bool:
    return caller.is_admin or view.owner == caller.owner


def _find(request: web.Request) -> SessionView:
    """The session meant by the path, among those the caller may see."""
    caller, name = request[FACTS].caller, request.match_info["id"]
    owner = _owner_asked(request)
    found = [
        view
        for view in request.app[STATE].engine.page.sessions()
        if view.name == name and _may_see(caller, view) and owner in (None, view.owner)
    ]
    if not found:
        raise ApiError("session_not_found", f"There is no session {shown(name)}.", "id")
    if len(found) > 1:
        owners = ", ".join(str(view.owner) for view in found)
        raise ApiError("ambiguous_session", f"Owners {owners} have a session {name}: name one with ?owner=.", "owner")
    return found[0]


def _owner_asked(request: web.Request) -> int | None:
    text = request.query.get("owner")
    if text is None:
        return None
    if not text.isascii() or not text.isdigit():
        raise ApiError("invalid_value", f"owner: {shown(text)} is not a number.", "owner")
    return int(text)


def _check(view: SessionView, reply: Reply) -> None:
    """A session that was closed in the meantime is not there; anything else is the engine's own failure."""
    if reply.status == Status.NOT_FOUND:
        raise ApiError("session_not_found", f"There is no session {shown(view.name)}.", "id")
    if reply.status != Status.OK:
        raise ApiError(code_of_status(STATUS_WORDS[reply.status]))


def _session(state: State, view: SessionView) -> Session:
    last = None
    if view.n_requests:
        last = LastStart(
            reason=REASON_WORDS[view.reason],
            reason_text=REASON_TEXTS[view.reason],
            prompt_tokens=view.n_last_prompt,
            reused_tokens=view.n_last_reused,
            diverged_at=view.diverged_at if view.diverged_at >= 0 else None,
        )
    return Session(
        id=view.name,
        owner=view.owner,
        slot=view.slot,
        state=STATE_WORDS[view.state],
        tokens=view.n_tokens,
        visible_tokens=view.n_visible,
        context_tokens=state.engine.info.n_ctx,
        waiting=view.n_waiting,
        requests=view.n_requests,
        prefilled_tokens_total=view.n_prefilled_total,
        reused_tokens_total=view.n_reused_total,
        generated_tokens_total=view.n_generated_total,
        opened_ms=view.opened_ms,
        used_ms=view.used_ms,
        last=last,
    )
