"""Sessions as they travel. Types only, no I/O."""

from __future__ import annotations

from typing import Literal

import msgspec


class LastStart(msgspec.Struct, frozen=True):
    """How the last request of a session began."""

    reason: str
    reason_text: str
    prompt_tokens: int
    reused_tokens: int
    diverged_at: int | None


class Timeline(msgspec.Struct, frozen=True, kw_only=True):
    """One of the branches that a session holds side by side, as the shared page shows it."""

    slot: int
    state: str
    tokens: int
    """Resident tokens."""
    visible_tokens: int
    waiting: int
    """Requests queued behind the running one."""
    requests: int
    prefilled_tokens_total: int
    reused_tokens_total: int
    generated_tokens_total: int
    opened_ms: int
    used_ms: int
    last: LastStart | None


class Session(Timeline, frozen=True, kw_only=True):
    """A session: the totals of its branches, and each of them. `slot` and `last` are those of the branch used last;
    `state` is that of a running branch, else of the one used last."""

    id: str
    owner: int
    owner_name: str | None
    """From the key file; null: no key has this owner any more."""
    client: str | None
    """The program that asked last, by its User-Agent; null: none since the daemon started."""
    last_words: str | None
    """The beginning of the last user message of a chat since the daemon started."""
    pinned: bool
    context_tokens: int
    """Limit of one branch."""
    timelines: list[Timeline]
    """The one used last first."""
    object: Literal["session"] = "session"


class Places(msgspec.Struct, frozen=True):
    named: int
    named_used: int
    """Branches of named sessions in the model's memory, those of other owners included."""
    scratch: int
    parked: int
    parked_max: int
    dormant: int
    """Sessions on disk without a place, which a later start may have."""
    policy: str


class Storage(msgspec.Struct, frozen=True):
    """Memory and disk of sessions outside the model's memory."""

    parked_bytes: int
    """In memory and on disk."""
    parked_bytes_max: int
    """In memory; the rest goes to disk."""
    disk_bytes: int
    """Bytes of states on disk, including older states of sessions in use."""
    disk_bytes_max: int
    """0: there is no state directory."""
    disk_refuses: bool
    """The disk refused a state a short time ago: none is written, states without memory are dropped."""
    checkpoints: int
    checkpoint_bytes: int
    checkpoint_bytes_max: int
    state_dir: str | None
    """Shown to administrators only; null: memory only."""


class SessionList(msgspec.Struct, frozen=True):
    data: list[Session]
    places: Places
    storage: Storage
    scratch: list[Session]
    """Places of requests without a session, the last used first. Each id can be shown and explained."""
    object: Literal["list"] = "list"


class ForkRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    session_id: str
    """The new session."""
    at: int | str | None = None
    """A count of tokens, `last_user`, or `turn:N`: before the last message of the user, or the N-th. Default: all."""
    replace: bool = False
    """Close a session that has the id already; false: that is the error session_exists."""


class PinRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    pinned: bool


class RenameRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    session_id: str


class SessionDeleted(msgspec.Struct, frozen=True):
    id: str
    session_id: str
    deleted: bool
    """Whether the session existed."""
    closed: bool = True
    """It is closed now, whether it existed or not."""
    object: Literal["session.deleted"] = "session.deleted"


class SessionReset(Session, frozen=True, kw_only=True):
    """The session as it is now; one that did not exist is empty, with slot -1."""

    session_id: str
    existed: bool
    reset: bool = True
    """It is empty now, whether it existed or not."""
