"""What a client may rely on after an answer: kept by name, for sessions and for saved ones."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Any

Json = dict[str, Any]

TRAIL = 40


@dataclass(frozen=True)
class Held:
    """What a session holds: the conversation, its last answer included."""

    messages: list[Json]
    n_prompt: int
    """Tokens of the prompt of that answer: what the session holds begins with them."""


@dataclass(frozen=True)
class Label:
    """What was saved under a label."""

    is_there: bool
    held: Held | None = None
    """None: nobody knows what it was."""
    n_tokens: int = 0


@dataclass
class Promise:
    """About one session. None: the last command about it was not acknowledged, so that either may be true."""

    is_open: bool | None = False
    is_pinned: bool | None = False
    trail: deque[str] = field(default_factory=lambda: deque(maxlen=TRAIL))
    """The last that happened to it, for whoever looks for the cause."""

    is_haunted: bool = False
    """The disk refused something about it: what it holds of it is known with the next start that can read it."""

    holds: Held | None = None
    """None: nobody knows; known from the first answer of a life on."""

    def unknown(self) -> None:
        self.is_open = self.is_pinned = None

    def taken_back(self, was: Promise, is_haunted: bool) -> None:
        """The command was refused: nothing has changed, unless it was the disk that refused it."""
        if is_haunted:
            self.haunted()
        else:
            self.is_open, self.is_pinned, self.holds = was.is_open, was.is_pinned, was.holds

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
        """Without power only pinned ones come back for certain, for others may have lived in memory alone; and where
        there were too few places."""
        for promise in self.sessions.values():
            if promise.is_open and not promise.is_pinned:
                promise.is_open = None

    def broken_by(self, sessions: list[Json], *, some_sleep: bool) -> list[str]:
        """`sessions`: as /v1/sessions lists them. Those that sleep it does not list."""
        listed = {one["id"]: one for one in sessions}
        broken = []
        for name, promise in self.sessions.items():
            found = listed.get(name)
            if found is None and some_sleep:
                continue
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
        for label, saved in self.saved.items():
            if saved is not None and (label in labels) != saved.is_there:
                broken.append(f"what was saved as {label} is {'back' if label in labels else 'gone'}")
        return broken


def broken_by_loaded(label: str, saved: Label, loaded: Json, report: Json) -> list[str]:
    """`loaded`: the session that it was loaded as. `report`: how the answer to a next message in it began: what was
    saved is the beginning of that prompt, at least as far as it was a prompt itself."""
    at, broken = report.get("diverged_at"), []
    if loaded["tokens"] != saved.n_tokens:
        broken.append(f"saved as {label} were {saved.n_tokens} tokens, loaded {loaded['tokens']}")
    if saved.held is not None and at is not None and at < saved.held.n_prompt:
        broken.append(f"what was saved as {label} is another conversation from token {at} of {saved.held.n_prompt} on")
    if report["session_reset_reason"] in ("new", "mismatch"):
        broken.append(f"nothing of what was saved as {label} was of use: {report}")
    return broken
