"""GET /v1/feed: a stream of server-sent events that shows what the server does. The first event has all sessions that
the caller may see, and later events have those that have changed.

All feeds share one copy of the sessions, which is read at most once per second, and only while a feed is open. A client
that reads slowly skips events: the next event is made only after the previous one has been sent.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial

import msgspec
from aiohttp import web

from ...core import limits
from ...core.errors import ApiError
from ...core.shares import Admission
from ...engine.native import SessionView
from ...turns.log import scratch_id
from ..access import Caller
from ..boundary import identify, is_local
from ..context import FACTS, STATE, State
from ..framing import EVENTS
from .feed_wire import FeedEvent, ForgottenSession, ModelMemory
from .sessions import may_see, sessions_of, slot_counts, storage
from .wire import Session

log = logging.getLogger("llmd.http")

Key = tuple[int, str]
"""Owner and id of a session, or of a branch of requests without a session."""


@dataclass(frozen=True, slots=True)
class _Known:
    """A session as it was when the session table was read most recently."""

    version: int
    """The version of the shared copy that has the newest change of the session."""
    views: tuple[SessionView, ...]
    others: tuple[object, ...]
    """The data, other than `views`, from which `session` was made. `session` is up to date if neither `views` nor this
    data has changed.
    """
    session: Session


class Feed:
    """The shared copy of the sessions, and the events that are made from it. The event loop owns this object."""

    def __init__(self) -> None:
        self.admission = Admission(limits.FEEDS_MAX, noun="feeds")
        self.version = 0
        """Increases with every reading of the sessions. A feed that has sent version n needs the changes after version
        n.
        """
        self._records: dict[bytes, SessionView] = {}
        self._known: dict[Key, _Known] = {}
        self._forgotten: deque[tuple[int, Key]] = deque(maxlen=limits.FEED_FORGOTTEN_MAX)
        """The sessions that no longer exist, each with the version in which it was first missing."""
        self._complete_from = 0
        """_forgotten has all sessions that were forgotten after this version."""
        self._reading = asyncio.Lock()
        self._read_at = float("-inf")

    async def refresh(self, state: State) -> None:
        """Reads the sessions again, unless another feed has just done so."""
        async with self._reading:
            now = asyncio.get_running_loop().time()
            if now - self._read_at < limits.FEED_INTERVAL_S / 2:
                return
            known = self._known
            try:
                reading = partial(_read, state, self._records, known, self.version + 1)
                self._records, found = await state.engine.in_thread(0, 0, reading)
            except ApiError:  # the text threads have too much work; the next event reports the changes
                return
            self._read_at = now
            self.version += 1
            for key in known.keys() - found.keys():
                if len(self._forgotten) == self._forgotten.maxlen:
                    self._complete_from = self._forgotten[0][0]
                self._forgotten.append((self.version, key))
            self._known = found

    def event(self, state: State, caller: Caller, seen: int) -> FeedEvent:
        """Returns the event for a caller whose last event was made from version `seen`, or 0."""
        counters = state.engine.session_table.counters()
        is_full = seen == 0 or seen < self._complete_from
        changed = [one.session for one in self._known.values() if one.version > seen or is_full]
        forgotten = [
            ForgottenSession(*key) for version, key in self._forgotten if version > seen and key not in self._known
        ]
        named = (view for one in self._known.values() for view in one.views if view.name)
        return FeedEvent(
            time_ms=time.time_ns() // 1_000_000,
            full=is_full,
            sessions=[one for one in changed if may_see(caller, one.owner)],
            forgotten=[] if is_full else [one for one in forgotten if may_see(caller, one.owner)],
            places=slot_counts(state, named, counters),
            storage=storage(state, caller, counters),
            memory=_memory(state, counters),
            counters=counters,
        )


FEED = web.AppKey("feed", Feed)


def _memory(state: State, counters: Mapping[str, int]) -> ModelMemory:
    info = state.engine.info
    return ModelMemory(
        state_bytes=counters["state_used_bytes"],
        state_bytes_max=info.state_bytes,
        kv_tokens=counters["kv_cells_used"],
        kv_tokens_max=info.n_cells if info.n_cells < limits.UINT32_MAX else None,
    )


async def show_feed(request: web.Request) -> web.StreamResponse:
    state, feed = request.app[STATE], request.app[FEED]
    _ = state.engine  # raises ApiError while the model loads
    feed.admission.n_owners = state.n_owners
    # Clients of the unix socket, such as llmctl, are not counted. So other clients cannot keep them out.
    with nullcontext() if is_local(request) else feed.admission.entered(request[FACTS].caller.owner):
        response = web.StreamResponse(headers=EVENTS.headers())
        await response.prepare(request)
        try:
            if request.method != "HEAD":
                await _send(request, response)
            await response.write_eof()
        except ConnectionError:  # the client has disconnected
            pass
        except Exception:  # an error answer is no longer possible, because the headers have been sent
            log.exception("a feed failed because of an error in llmd")
            _abort(request)
    return response


def _abort(request: web.Request) -> None:
    if request.transport is not None:
        request.transport.abort()


async def _send(request: web.Request, response: web.StreamResponse) -> None:
    state, feed, caller, seen = request.app[STATE], request.app[FEED], request[FACTS].caller, 0
    keys = state.keys
    while not state.is_stopping:
        await feed.refresh(state)
        if state.keys is not keys:  # the key file was read again, and may no longer have the key of this feed
            try:
                keys, caller, seen = state.keys, identify(state, request, request[FACTS]), 0
            except ApiError:
                return
        data = EVENTS.keep_alive  # sent until the sessions have been read for the first time
        if feed.version > 0:
            data = EVENTS.frame(msgspec.json.encode(feed.event(state, caller, seen)))
            seen = feed.version
        try:
            async with asyncio.timeout(state.config.slow_reader_timeout):
                await response.write(data)
        except TimeoutError:
            _abort(request)
            raise ConnectionResetError from None
        await asyncio.sleep(_until_next_event())


def _until_next_event() -> float:
    """All feeds send events at the same moments. So the sessions are read only once, and llmd wakes up only once."""
    return limits.FEED_INTERVAL_S - asyncio.get_running_loop().time() % limits.FEED_INTERVAL_S


def _read(
    state: State, known_records: dict[bytes, SessionView], known: dict[Key, _Known], version: int
) -> tuple[dict[bytes, SessionView], dict[Key, _Known]]:
    """Returns the records of all branches, and all sessions. Those that have not changed are taken from the arguments,
    because making a report takes longer than comparing records. Runs in a text thread.
    """
    records = state.engine.session_table.sessions_by_record(known_records)
    groups: dict[Key, list[SessionView]] = {}
    for view in records.values():
        if view.name or view.n_requests:
            groups.setdefault((view.owner, view.name or scratch_id(view.entry)), []).append(view)
    found: dict[Key, _Known] = {}
    for key, group in groups.items():
        views, before = tuple(group), known.get(key)
        others = (state.keys.name_of(key[0]), *state.turns.reported(*key))
        if before is not None and before.views == views and before.others == others:
            found[key] = before
        else:
            found[key] = _Known(version, views, others, sessions_of(state, views)[0])
    return records, found
