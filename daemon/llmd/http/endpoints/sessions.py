"""/v1/sessions: lists, shows, resets and closes sessions. Reads the session table to list and show sessions, so these
requests do not wait for the decode thread.

The session table has an entry for each branch. All branches that have the same owner and session name are reported as
one session.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping

import msgspec
from aiohttp import web

from ...core import limits, session_key
from ...core.errors import ApiError, code_of_status, invalid_value, quoted
from ...engine.native import PLACE_WORDS, REASON_WORDS, STATE_WORDS, STATUS_WORDS, SessionView, Status
from ...engine.wire import Close, Reply, Reset
from ...turns.log import reason_text, reported_reason, scratch_id
from ..access import Caller
from ..body import respond
from ..context import FACTS, STATE, State
from .wire import LastStart, Places, Session, SessionDeleted, SessionList, SessionReset, Storage, Timeline

_RUNNING = ("decode", "prefill")
_SCRATCH = re.compile(r"\(scratch ([0-9]{1,6})\)")


async def list_sessions(request: web.Request) -> web.Response:
    """Lists the sessions. The report of one session takes about 30 us, and thousands of sessions can exist. So the list
    is built in a text thread (text_threads.py). It counts as a short job, so it does not wait for long jobs.
    """
    state, caller = request.app[STATE], request[FACTS].caller

    def listed() -> web.Response:
        views = list(state.engine.session_table.sessions())
        own = sessions_of(state, (view for view in views if view.name and may_see(caller, view.owner)))
        used = (view for view in views if not view.name and view.n_requests and may_see(caller, view.owner))
        counters = state.engine.session_table.counters()
        places = slot_counts(state, (view for view in views if view.name), counters)
        return respond(SessionList(own, places, storage(state, caller, counters), sessions_of(state, used)))

    return await state.engine.in_thread(caller.owner, 0, listed)


async def show_session(request: web.Request) -> web.Response:
    return respond(find_any(request))


async def reset_session(request: web.Request) -> web.Response:
    state = request.app[STATE]
    owner, name = resolve_target(request)
    existed = _existed(await state.engine.ask(Reset, owner, name))
    found = current_session(state, owner, name) if existed else _session(state, owner, name, [])
    return respond(SessionReset(session_id=name, existed=existed, **msgspec.structs.asdict(found)))


async def delete_session(request: web.Request) -> web.Response:
    state = request.app[STATE]
    owner, name = resolve_target(request)
    existed = _existed(await state.engine.ask(Close, owner, name))
    return respond(SessionDeleted(name, name, existed))


def _existed(reply: Reply) -> bool:
    """Returns whether the session existed when it was reset or closed. If it did not exist, this is no error. Raises
    ApiError for every other failure.
    """
    if reply.status == Status.NOT_FOUND:
        return False
    check("", reply)
    return True


def resolve_target(request: web.Request) -> tuple[int, str]:
    """Returns the owner and name of the session in the path. The session can be missing from the session table: it may
    exist only on disk, and only the engine knows the sessions on disk.
    """
    try:
        found = find(request)
    except ApiError as error:
        caller, owner, name = request[FACTS].caller, owner_in_query(request), request.match_info["id"]
        owner = caller.owner if owner is None else owner
        if error.code != "session_not_found" or not may_see(caller, owner):
            raise
        return owner, name
    return found.owner, found.id


# --- finding sessions ---------------------------------------------------------------------------------------------


def may_see(caller: Caller, owner: int) -> bool:
    return caller.is_admin or owner == caller.owner


def find(request: web.Request) -> Session:
    """Returns the report of the session in the path. Raises ApiError if the session table has no session of this id
    that the caller may see. Also raises ApiError if several owners have such a session.
    """
    state, caller, name = request.app[STATE], request[FACTS].caller, request.match_info["id"]
    session_key.valid_id("id", name)
    owner = owner_in_query(request)
    views = state.engine.session_table.sessions_named(name, owner)
    found = sessions_of(state, (view for view in views if may_see(caller, view.owner)))
    if not found:
        raise not_found(name)
    if len(found) > 1:
        owners = ", ".join(session.owner_name or str(session.owner) for session in found)
        raise ApiError(
            "ambiguous_session",
            f"Several owners have a session {name}: {owners}. Choose one with ?owner=NAME (llmctl: --owner NAME).",
            "owner",
        )
    return found[0]


def find_any(request: web.Request) -> Session:
    """Returns the report of the session in the path, like `find`. The id in the path can also be "(scratch N)". Lists
    show a branch of requests without a session under this id.
    """
    match = _SCRATCH.fullmatch(request.match_info["id"])
    if match is None:
        return find(request)
    state, caller = request.app[STATE], request[FACTS].caller
    view = state.engine.session_table.session(int(match[1]))
    if view is None or view.name or not may_see(caller, view.owner):
        raise not_found(match[0])
    return sessions_of(state, [view])[0]


def current_session(state: State, owner: int, name: str) -> Session:
    """Returns the report of a session that a command has changed. Raises ApiError if the session no longer exists."""
    found = sessions_of(state, state.engine.session_table.sessions_named(name, owner))
    if not found:
        raise not_found(name)
    return found[0]


def owner_in_query(request: web.Request) -> int | None:
    """Returns the number of the owner in the query. The query names the owner by `owner=NAME` or `owner=NUMBER`.
    Returns None if the query has no owner. Only administrators may use the names of other owners.
    """
    text, caller = request.query.get("owner"), request[FACTS].caller
    if text is None:
        return None
    number = request.app[STATE].keys.owner_by_name(text)
    owner = number if number is not None and may_see(caller, number) else uint32_of(text)
    if owner is None:
        raise invalid_value(
            "owner", f"{quoted(text)} is neither an owner's name nor a number from 0 to {limits.UINT32_MAX}"
        )
    return owner


def not_found(name: str) -> ApiError:
    return ApiError("session_not_found", f"There is no session {quoted(name)}.", "id")


def uint32_of(text: str) -> int | None:
    """Converts `text`, a number in decimal digits. Returns None if `text` has other characters or no digits. Also
    returns None if the number exceeds UINT32_MAX, the largest number that the engine accepts. Checks the length first,
    because int() fails for thousands of digits.
    """
    if not text.isascii() or not text.isdigit() or len(text) > len(str(limits.UINT32_MAX)):
        return None
    number = int(text)
    return number if number <= limits.UINT32_MAX else None


def check(name: str, reply: Reply) -> None:
    """Raises ApiError unless the engine has executed a command on the session `name`. The status NOT_FOUND means that
    the session was closed before the engine executed the command.
    """
    if reply.status == Status.NOT_FOUND:
        raise not_found(name)
    if reply.status != Status.OK:
        raise failure(reply)


def failure(reply: Reply, param: str | None = None) -> ApiError:
    """Returns the error for a command that the engine could not execute. The error includes the cause that the
    operating system reported, because clients cannot read the server's log.
    """
    error = ApiError(code_of_status(STATUS_WORDS[reply.status]), None, param)
    if reply.os_error == 0:
        return error
    return ApiError(error.code, f"{error.message} Cause: {os.strerror(reply.os_error)}.", param)


# --- reporting ----------------------------------------------------------------------------------------------------


def sessions_of(state: State, views: Iterable[SessionView]) -> list[Session]:
    """Returns the reports of all sessions that have one of these branches, the most recently used session first."""
    groups: dict[tuple[int, str], list[SessionView]] = {}
    for view in views:
        groups.setdefault((view.owner, view.name or scratch_id(view.entry)), []).append(view)
    for group in groups.values():
        group.sort(key=lambda view: (view.used_ms, view.n_requests), reverse=True)
    ordered = sorted(groups.items(), key=lambda group: group[1][0].used_ms, reverse=True)
    return [_session(state, owner, id, group) for (owner, id), group in ordered]


def _session(state: State, owner: int, id: str, views: list[SessionView]) -> Session:
    """Returns the report of a session. `views` are the session's branches, the most recently used first. A session
    without branches is reported with the state "empty".
    """
    branches = [_branch(state, id, view) for view in views]
    latest = branches[0] if branches else None
    state_word = latest.state if latest is not None else "empty"
    return Session(
        id=id,
        owner=owner,
        owner_name=state.keys.name_of(owner),
        client=state.turns.client(owner, id),
        last_words=state.turns.last_words(owner, id),
        slot=latest.slot if latest is not None else -1,
        kept_in=latest.kept_in if latest is not None else "none",
        state=next((one.state for one in branches if one.state in _RUNNING), state_word),
        pinned=any(view.is_pinned for view in views),
        context_tokens=state.engine.info.n_ctx,
        opened_ms=min((one.opened_ms for one in branches), default=0),
        used_ms=latest.used_ms if latest is not None else 0,
        last=latest.last if latest is not None else None,
        timelines=branches,
        tokens=sum(one.tokens for one in branches),
        visible_tokens=sum(one.visible_tokens for one in branches),
        waiting=sum(one.waiting for one in branches),
        requests=sum(one.requests for one in branches),
        prefilled_tokens_total=sum(one.prefilled_tokens_total for one in branches),
        reused_tokens_total=sum(one.reused_tokens_total for one in branches),
        generated_tokens_total=sum(one.generated_tokens_total for one in branches),
        memory_bytes=sum(one.memory_bytes for one in branches),
        checkpoint_bytes=sum(one.checkpoint_bytes for one in branches),
        disk_bytes=sum(one.disk_bytes for one in branches),
    )


def _branch(state: State, id: str, view: SessionView) -> Timeline:
    last = None
    if view.n_requests:
        n_prompt, n_reused = view.n_last_prompt, view.n_last_reused
        reason = reported_reason(view.reason, n_prompt, n_reused)
        is_from_own = state.turns.is_from_own(view.owner, id, view.entry, n_prompt, n_reused)
        last = LastStart(
            reason=REASON_WORDS[reason],
            reason_text=reason_text(reason, n_reused, is_from_own=is_from_own),
            prompt_tokens=n_prompt,
            reused_tokens=n_reused,
            diverged_at=view.diverged_at if view.diverged_at >= 0 else None,
        )
    return Timeline(
        slot=view.entry,
        state=STATE_WORDS[view.state],
        kept_in=PLACE_WORDS[view.kept_in],
        tokens=view.n_tokens,
        visible_tokens=view.n_visible,
        waiting=view.n_waiting,
        requests=view.n_requests,
        prefilled_tokens_total=view.n_prefilled_total,
        reused_tokens_total=view.n_reused_total,
        generated_tokens_total=view.n_generated_total,
        memory_bytes=view.memory_bytes,
        checkpoint_bytes=view.checkpoint_bytes,
        disk_bytes=view.disk_bytes,
        opened_ms=view.opened_ms,
        used_ms=view.used_ms,
        last=last,
    )


def slot_counts(state: State, views_with_name: Iterable[SessionView], counters: Mapping[str, int]) -> Places:
    info = state.engine.info
    views = list(views_with_name)
    n_parked = sum(STATE_WORDS[view.state] == "parked" for view in views)
    return Places(
        named=info.n_sessions,
        named_used=sum(PLACE_WORDS[view.kept_in] == "slot" for view in views),
        scratch=info.n_scratch,
        parked=n_parked,
        parked_max=info.n_entries - info.n_sessions - info.n_scratch,
        dormant=counters["sessions_dormant"],
        policy=state.config.capacity_policy,
    )


def storage(state: State, caller: Caller, counters: Mapping[str, int]) -> Storage:
    info, directory = state.engine.info, state.config.state_dir
    return Storage(
        parked_bytes=counters["parked_bytes"],
        parked_bytes_max=info.parked_bytes_max,
        disk_bytes=counters["parked_disk_bytes"],
        disk_bytes_max=info.parked_disk_bytes_max,
        disk_refuses=bool(counters["parked_disk_refuses"]),
        checkpoints=counters["checkpoints"],
        checkpoint_bytes=counters["checkpoint_bytes"],
        checkpoint_bytes_max=info.checkpoint_bytes_max,
        state_dir=str(directory) if directory is not None and caller.is_admin else None,
    )
