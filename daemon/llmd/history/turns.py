"""The last turns of each session: what `explain` tells, and where its messages begin. Owned by the event loop.

Where the histories of a turn diverged, the prompt's side is certain. The resident side is what the session's timelines
held when the request came, read from the shared page before the request was queued. Only the tokens around the first
difference are kept. It is left out when it is not certain to be what the decode thread compared with: when the timeline
was busy then, when it was opened or chosen otherwise, or when the difference the decode thread found is another one.
Turns of an earlier daemon, and of sessions not used for long (limits.TOLD_SESSIONS_MAX), are forgotten.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from dataclasses import dataclass, field

from ..core import limits
from ..core.shares import who_must_go
from ..engine.native import STATE_WORDS, Page

_TOKEN_BYTES = 4
_BUSY = frozenset(STATE_WORDS.index(word) for word in ("prefill", "decode"))


@dataclass(frozen=True, slots=True)
class Sight:
    """Where the prompt leaves what an idle timeline holds, and the resident tokens from there."""

    at: int
    resident: bytes


@dataclass(frozen=True, slots=True)
class Divergence:
    at: int
    before: bytes
    """Tokens that both have."""
    prompt: bytes
    resident: bytes | None
    """None: not known for certain."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    at_ms: int
    slot: int | None
    reason: int | None
    """None: it ended before it began."""
    outcome: str
    n_prompt: int
    n_reused: int
    n_prefilled: int
    n_generated: int
    divergence: Divergence | None


@dataclass(slots=True)
class Told:
    """Of one session. Whoever was there before it was forgotten adds to what nobody is told any more."""

    turns: deque[Turn] = field(default_factory=lambda: deque(maxlen=limits.TOLD_TURNS_MAX))
    slots: set[int] = field(default_factory=set)
    user_starts: dict[int, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Visit:
    """One request of a session, from its arrival on."""

    told: Told | None
    """None: of no session."""
    sights: dict[int, Sight]


class Turns:
    def __init__(self, page: Page) -> None:
        self._page = page
        self._told: OrderedDict[tuple[int, str], Told] = OrderedDict()

    # --- a request comes ---------------------------------------------------------------------------------------------

    def look(self, owner: int, name: str, prompt: bytes) -> Visit:
        """What the timelines of this session hold beside the prompt, by slot. Before the request is queued."""
        if not name:
            return Visit(None, {})
        told = self._of(owner, name)
        sights = self._sights(told.slots, owner, name, prompt)
        if not sights:
            told.slots = self._page.slots_of(owner, name)
            sights = self._sights(told.slots, owner, name, prompt)
        return Visit(told, sights)

    def _sights(self, slots: set[int], owner: int, name: str, prompt: bytes) -> dict[int, Sight]:
        found = {}
        for slot in slots:
            view = self._page.session(slot)
            if view is None or (view.owner, view.name) != (owner, name):
                continue
            tokens = self._page.tokens(slot) if view.state not in _BUSY and not view.n_waiting else None
            if tokens is not None:
                found[slot] = _sight(tokens.tobytes(), prompt)
        return found

    def _of(self, owner: int, name: str) -> Told:
        told = self._told.setdefault((owner, name), Told())
        self._told.move_to_end((owner, name))
        while len(self._told) > limits.TOLD_SESSIONS_MAX:
            self.forget(*who_must_go(self._told))
        return told

    # --- it starts ---------------------------------------------------------------------------------------------------

    def started(self, visit: Visit, user_starts: dict[int, int]) -> None:
        """From here the session holds this prompt; one that was refused before leaves it as it is."""
        if visit.told is not None:
            visit.told.user_starts = user_starts

    # --- it has ended ------------------------------------------------------------------------------------------------

    def add(self, visit: Visit, turn: Turn) -> None:
        if visit.told is not None:
            visit.told.turns.append(turn)
            if turn.slot is not None:
                visit.told.slots.add(turn.slot)

    # --- telling -----------------------------------------------------------------------------------------------------

    def story(self, owner: int, name: str) -> list[Turn]:
        """The oldest first."""
        told = self._told.get((owner, name))
        return list(told.turns) if told is not None else []

    def user_starts(self, owner: int, name: str) -> dict[int, int]:
        """Of the last prompt begun: number of a user's message, from 1, to the tokens before it. Empty: not known."""
        told = self._told.get((owner, name))
        return told.user_starts if told is not None else {}

    def renamed(self, owner: int, name: str, new_name: str) -> None:
        told = self._told.pop((owner, name), None)
        if told is not None:
            self._told[(owner, new_name)] = told

    def forget(self, owner: int, name: str) -> None:
        self._told.pop((owner, name), None)


def _sight(resident: bytes, prompt: bytes) -> Sight:
    at = n_common(resident, prompt)
    first = _TOKEN_BYTES * at
    return Sight(at, resident[first : first + _TOKEN_BYTES * limits.DIVERGENCE_TOKENS_KEPT])


def n_common(a: bytes, b: bytes) -> int:
    """How many tokens two histories share from the start. Halving: slices compare at the speed of memory."""
    low, high = 0, min(len(a), len(b)) // _TOKEN_BYTES
    while low < high:
        middle = (low + high + 1) // 2
        if a[_TOKEN_BYTES * low : _TOKEN_BYTES * middle] == b[_TOKEN_BYTES * low : _TOKEN_BYTES * middle]:
            low = middle
        else:
            high = middle - 1
    return low


def divergence_of(prompt: bytes, diverged_at: int, sight: Sight | None) -> Divergence | None:
    """`diverged_at` as the decode thread found it; -1: the prompt went on with what was resident."""
    if diverged_at < 0:
        return None
    kept, first = _TOKEN_BYTES * limits.DIVERGENCE_TOKENS_KEPT, _TOKEN_BYTES * diverged_at
    return Divergence(
        at=diverged_at,
        before=prompt[max(first - kept, 0) : first],
        prompt=prompt[first : first + kept],
        resident=sight.resident if sight is not None and sight.at == diverged_at else None,
    )


def user_starts(roles: list[str], boundaries: bytes) -> dict[int, int]:
    """Which boundary of a rendered prompt begins which user's message (llm_chat_render: the latest few, then the end).

    Boundaries that the template does not allow are left out of the prompt's; then it is not known which ones are there,
    and the answer is empty.
    """
    counts = memoryview(boundaries).cast("i").tolist()
    users = [index for index, role in enumerate(roles) if role == "user"]
    latest = [index for index in users if index > 0][-limits.USER_BOUNDARIES_MAX :]
    head = next((index for index, role in enumerate(roles) if role != "system"), 0)
    has_head = 0 < head < len(roles) and (not latest or head < latest[0])
    if len(counts) != len(latest) + has_head + 1:
        return {}
    starts = dict(zip(latest, counts[has_head : len(counts) - 1], strict=True))
    if users and users[0] == 0:
        starts[0] = 0
    return {number: starts[index] for number, index in enumerate(users, 1) if index in starts}
