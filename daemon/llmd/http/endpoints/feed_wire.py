"""Types of the events of GET /v1/feed. This module does no I/O."""

from __future__ import annotations

from typing import Literal

import msgspec

from .wire import Places, Session, Storage


class ForgottenSession(msgspec.Struct, frozen=True):
    """A session that no longer exists, or exists only on disk. Ids are only unique for one owner."""

    owner: int
    id: str


class ModelMemory(msgspec.Struct, frozen=True):
    """How much of the model's memory the branches in slots use."""

    state_bytes: int
    """Bytes of the KV cache and of recurrent states that branches use."""
    state_bytes_max: int
    kv_tokens: int
    """Number of tokens of the branches. A token that several branches share in one KV cell counts for each of them. So
    this can be more than `kv_tokens_max`.
    """
    kv_tokens_max: int | None
    """Number of tokens that fit the KV cache. null if this is not limited, as with a recurrent model."""


class FeedEvent(msgspec.Struct, frozen=True):
    """The data of an event of GET /v1/feed, once per second."""

    time_ms: int
    """Unix time of the event."""
    full: bool
    """True if `sessions` has all sessions. The client then forgets the sessions that it knew. This is true in the first
    event. In a later event, it is true only if the API keys were loaded again, or if too many sessions were forgotten
    since the previous event.
    """
    sessions: list[Session]
    """The sessions that have changed since the previous event, and branches of requests that name no session. Those
    have an id such as "(scratch 3)".
    """
    forgotten: list[ForgottenSession]
    """The sessions that are gone since the previous event."""
    places: Places
    storage: Storage
    memory: ModelMemory
    counters: dict[str, int]
    """Counters and gauges of the engine, as GET /metrics has them, but times are in microseconds."""
    object: Literal["feed"] = "feed"
