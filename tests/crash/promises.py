"""Promises that an answer makes to a client: kept by name, for sessions and for saved ones."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Any

Json = dict[str, Any]

TRAIL = 40
NOT_THERE = "session_not_found"
"""The session did not exist, or was given up between the command and its answer: nobody knows whether the command was
carried out."""


TOKEN_BYTES = 4


@dataclass(frozen=True)
class Label:
    """A session saved under a label."""

    is_there: bool
    messages: list[Json] = field(default_factory=list)
    """As the client had them."""
    n_tokens: int = 0
    """As the answer reported it."""
    held: frozenset[bytes] = frozenset()
    """The tokens of each timeline that the session was seen with, just before and just after."""

    @property
    def contents(self) -> frozenset[bytes]:
        """Contents that may be on disk. Empty: unknown, because the timeline made way for another one meanwhile."""
        return frozenset(tokens for tokens in self.held if len(tokens) == TOKEN_BYTES * self.n_tokens)


@dataclass
class Promise:
    """About one session. None: the last command about it was not acknowledged, so that either may be true."""

    is_open: bool | None = False
    is_pinned: bool | None = False
    trail: deque[str] = field(default_factory=lambda: deque(maxlen=TRAIL))
    """The last that happened to it, for whoever looks for the cause."""

    is_haunted: bool = False
    """The disk refused something about it: what it holds of it is known with the next start that can read it."""

    def unknown(self) -> None:
        self.is_open = self.is_pinned = None

    def taken_back(self, was: Promise, refusal: str) -> None:
        """The command was refused: nothing has changed, unless it was the disk that refused it."""
        if refusal == "io_error":
            self.haunted()
        elif refusal != NOT_THERE:
            self.is_open, self.is_pinned = was.is_open, was.is_pinned

    def haunted(self) -> None:
        self.is_haunted = True


@dataclass
class Promises:
    sessions: dict[str, Promise] = field(default_factory=dict)
    saved: dict[str, Label | None] = field(default_factory=dict)
    """None: it may be one or another, or none."""

    def of(self, name: str) -> Promise:
        return self.sessions.setdefault(name, Promise())

    def forget_unpinned(self) -> None:
        """After a power cut only pinned sessions come back for certain: others may have been in memory only, or may
        have made way for others."""
        for promise in self.sessions.values():
            if promise.is_open and not promise.is_pinned:
                promise.is_open = None

    def broken_by(self, sessions: list[Json]) -> list[str]:
        """`sessions`: as /v1/sessions lists them."""
        listed = {one["id"]: one for one in sessions}
        broken = []
        for name, promise in self.sessions.items():
            found = listed.get(name)
            if promise.is_haunted:
                promise.is_haunted, promise.is_open = False, found is not None
                promise.is_pinned = found is not None and found["pinned"]
                continue
            if promise.is_open is False and found is not None:
                broken.append(f"{name} was closed and is back with {found['tokens']} tokens: {[*promise.trail]}")
            if promise.is_open and found is None:
                word = "gone, although it was pinned" if promise.is_pinned else "gone"
                broken.append(f"{name} is {word}: {[*promise.trail]}")
            if found is not None and promise.is_pinned is not None and found["pinned"] != promise.is_pinned:
                broken.append(f"{name} is{'' if found['pinned'] else ' not'} pinned: {[*promise.trail]}")
        return broken

    def broken_by_saved(self, listed: dict[str, int]) -> list[str]:
        """`listed`: how many tokens each label of /v1/saved has."""
        broken = []
        for label, saved in self.saved.items():
            if saved is None:
                continue
            if (label in listed) != saved.is_there:
                broken.append(f"what was saved as {label} is {'back' if label in listed else 'gone'}")
            elif saved.is_there and listed[label] != saved.n_tokens:
                broken.append(f"what was saved as {label} had {saved.n_tokens} tokens and has {listed[label]}")
        return broken


def broken_by_loaded(label: str, saved: Label, contents: frozenset[bytes]) -> list[str]:
    """`contents`: of the session that it was loaded as."""
    if not saved.contents or contents & saved.contents:
        return []
    return [f"what was saved as {label} is something else: {contents} is none of {saved.contents}"]
