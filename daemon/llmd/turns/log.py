"""The last turns of each session: what `explain` tells, and where its messages begin. Owned by the event loop.

Turns of an earlier daemon, and of sessions not used for long (limits.TURN_SESSIONS_MAX), are forgotten.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from dataclasses import dataclass, field

from ..core import limits
from ..core.shares import who_must_go
from ..engine.native import STATE_WORDS, Page
from .divergence import DivergedTokens, Sight, sight_of
from .user_starts import UserMessages

_BUSY = frozenset(STATE_WORDS.index(word) for word in ("prefill", "decode"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    at_ms: int
    place: int | None
    reason: int | None
    """None: it ended before it began."""
    outcome: str
    n_prompt: int
    n_reused: int
    n_prefilled: int
    n_generated: int
    divergence: DivergedTokens | None


@dataclass(slots=True)
class SessionTurns:
    """Of one session. Whoever was there before it was forgotten adds to what nobody is told any more."""

    turns: deque[Turn] = field(default_factory=lambda: deque(maxlen=limits.TURNS_PER_SESSION_MAX))
    places: set[int] = field(default_factory=set)
    by_user: UserMessages = UserMessages()


@dataclass(frozen=True, slots=True)
class Visit:
    """One request of a session, from its arrival on."""

    log: SessionTurns | None
    """None: of no session."""
    sights: dict[int, Sight]


class TurnLog:
    def __init__(self, page: Page) -> None:
        self._page = page
        self._sessions: OrderedDict[tuple[int, str], SessionTurns] = OrderedDict()

    # --- a request comes ---------------------------------------------------------------------------------------------

    def look(self, owner: int, name: str, prompt: bytes) -> Visit:
        """What the timelines of this session hold beside the prompt, by place. Before the request is queued."""
        if not name:
            return Visit(None, {})
        found = self._of(owner, name)
        sights = self._sights(found.places, owner, name, prompt)
        if not sights:
            found.places = self._page.places_of(owner, name)
            sights = self._sights(found.places, owner, name, prompt)
        return Visit(found, sights)

    def _sights(self, places: set[int], owner: int, name: str, prompt: bytes) -> dict[int, Sight]:
        found = {}
        for place in places:
            view = self._page.session(place)
            if view is None or (view.owner, view.name) != (owner, name):
                continue
            tokens = self._page.tokens(place) if view.state not in _BUSY and not view.n_waiting else None
            if tokens is not None:
                found[place] = sight_of(tokens.tobytes(), prompt)
        return found

    def _of(self, owner: int, name: str) -> SessionTurns:
        found = self._sessions.setdefault((owner, name), SessionTurns())
        self._sessions.move_to_end((owner, name))
        while len(self._sessions) > limits.TURN_SESSIONS_MAX:
            self.forget(*who_must_go(self._sessions))
        return found

    # --- it starts ---------------------------------------------------------------------------------------------------

    def started(self, visit: Visit, by_user: UserMessages) -> None:
        """From here the session holds this prompt; one that was refused before leaves it as it is."""
        if visit.log is not None:
            visit.log.by_user = by_user

    # --- it has ended ------------------------------------------------------------------------------------------------

    def add(self, visit: Visit, turn: Turn) -> None:
        if visit.log is not None:
            visit.log.turns.append(turn)
            if turn.place is not None:
                visit.log.places.add(turn.place)

    # --- telling -----------------------------------------------------------------------------------------------------

    def story(self, owner: int, name: str) -> list[Turn]:
        """The oldest first."""
        found = self._sessions.get((owner, name))
        return list(found.turns) if found is not None else []

    def by_user(self, owner: int, name: str) -> UserMessages:
        """Of the last prompt begun; none: not known."""
        found = self._sessions.get((owner, name))
        return found.by_user if found is not None else UserMessages()

    def renamed(self, owner: int, name: str, new_name: str) -> None:
        found = self._sessions.pop((owner, name), None)
        if found is not None:
            self._sessions[(owner, new_name)] = found

    def forget(self, owner: int, name: str) -> None:
        self._sessions.pop((owner, name), None)
