"""Saved sessions as they travel. Types only, no I/O."""

from __future__ import annotations

from typing import Literal

import msgspec


class SaveRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The name under which the session is saved."""

    name: str


class LoadRequest(SaveRequest, frozen=True, forbid_unknown_fields=True):
    replace: bool = False
    """Replace a session that has this id."""


class SessionSaved(msgspec.Struct, frozen=True):
    id: str
    name: str
    tokens: int
    object: Literal["session.saved"] = "session.saved"


class Saved(msgspec.Struct, frozen=True):
    name: str
    owner: int
    owner_name: str | None
    tokens: int
    state_bytes: int
    """0: its tokens are read again when it is loaded."""
    saved_ms: int
    object: Literal["saved_session"] = "saved_session"


class SavedList(msgspec.Struct, frozen=True):
    """Saved sessions, the newest first."""

    data: list[Saved]
    own_max: int
    """The most sessions that one owner may save."""
    all_max: int
    """The most sessions that all owners may save."""
    object: Literal["list"] = "list"


class SavedDeleted(msgspec.Struct, frozen=True):
    name: str
    deleted: bool = True
    object: Literal["saved_session.deleted"] = "saved_session.deleted"
