"""What an answer guarantees to a client, by name, for sessions and saved sessions."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Any

Json = dict[str, Any]

TRAIL = 40
NOT_THERE = "session_not_found"
"""The session did not exist, or was evicted between the command and its answer. Whether the command was executed is
unknown.
"""


TOKEN_BYTES = 4


@dataclass(frozen=True)
class Label:
    """A session saved under a label."""

    is_there: bool
    messages: list[Json] = field(default_factory=list)
    """The messages as the client had them."""
    n_tokens: int = 0
    """The number that the answer reported."""
    held: frozenset[bytes] = frozenset()
    """The tokens of each timeline that the session had directly before and directly after the command."""

    @property
    def contents(self) -> frozenset[bytes]:
        """The contents that may be on disk. Empty if they are unknown, because the timeline was evicted in the
        meantime.
        """
        return frozenset(tokens for tokens in self.held if len(tokens) == TOKEN_BYTES * self.n_tokens)


@dataclass
class Promise:
    """The guarantees for one session. None means that its last command was not acknowledged, so either value may be
    true.
    """

    is_open: bool | None = False
    is_pinned: bool | None = False
    trail: deque[str] = field(default_factory=lambda: deque(maxlen=TRAIL))
    """The latest commands and answers, for a person who looks for the cause of a failure."""

    is_haunted: bool = False
    """A disk operation for the session failed. The next start that can read the disk shows what it contains."""

    def unknown(self) -> None:
        self.is_open = self.is_pinned = None

    def taken_back(self, was: Promise, refusal: str) -> None:
        """Handles a refused command. Nothing has changed, unless a disk operation failed."""
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
    """None means that the label may have any of several contents, or may not exist."""

    def of(self, name: str) -> Promise:
        return self.sessions.setdefault(name, Promise())

    def forget_unpinned(self) -> None:
        """After a power cut, only pinned sessions are certain to exist. Others may have been only in memory, or may
        have been evicted.
        """
        for promise in self.sessions.values():
            if promise.is_open and not promise.is_pinned:
                promise.is_open = None

    def broken_by(self, sessions: list[Json]) -> list[str]:
        """Returns the broken guarantees, given the sessions that /v1/sessions lists."""
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
        """Returns the broken guarantees, given the number of tokens of each label in /v1/saved."""
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
    """Returns the broken guarantees, given the contents of the session that the label was loaded as."""
    if not saved.contents or contents & saved.contents:
        return []
    return [f"what was saved as {label} is something else: {contents} is none of {saved.contents}"]
