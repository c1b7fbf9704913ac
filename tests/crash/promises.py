"""What a client may rely on after an answer: kept by name, for sessions and for saved ones."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Any

Json = dict[str, Any]

TRAIL = 40


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

    def haunted(self) -> None:
        self.is_haunted = True


@dataclass
class Promises:
    sessions: dict[str, Promise] = field(default_factory=dict)
    saved: dict[str, list[Json] | None] = field(default_factory=dict)
    """By label: the conversation that was saved, empty: removed; None: it may be one or another, or none."""

    def of(self, name: str) -> Promise:
        return self.sessions.setdefault(name, Promise())

    def forget_unpinned(self) -> None:
        """Without power only pinned ones come back for certain: others may have lived in memory alone."""
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

    def broken_by_saved(self, labels: set[str]) -> list[str]:
        """`labels`: as /v1/saved lists them."""
        broken = []
        for label, messages in self.saved.items():
            if messages is not None and (label in labels) != bool(messages):
                broken.append(f"what was saved as {label} is {'back' if label in labels else 'gone'}")
        return broken
