"""The last turns of each session, for `explain`, and the positions at which the user's messages begin, for `fork`. The
event loop owns all objects of this module.

The turns of an earlier daemon are not known. Beyond limits.TURN_SESSIONS_MAX sessions, the owner with the most sessions
loses the turns of its least recently used session.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from dataclasses import dataclass, field

from ..core import limits
from ..core.shares import pick_eviction_victim
from ..engine.native import OUTCOME_WORDS, REASON_TEXTS, REASON_WORDS, STATE_WORDS, Outcome, SessionTable
from .divergence import BranchMatch, DivergedTokens, match_of
from .user_starts import UserMessages

_NEW, _SHARED = REASON_WORDS.index("new"), REASON_WORDS.index("shared")
_BUSY = frozenset(STATE_WORDS.index(word) for word in ("prefill", "decode"))
_FROM_OWN = "Another branch of this session had the longest prefix of the prompt and was copied."
_FEW_COPIED = "The session had no tokens. Only the first few tokens of the prompt were copied from another session."


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    at_ms: int
    entry: int | None
    reason: int | None
    """Number of the reason word. None if the turn ended before it started."""
    outcome: str
    n_prompt: int
    n_reused: int
    n_prefilled: int
    n_generated: int
    divergence: DivergedTokens | None
    n_drafted: int = 0
    n_accepted: int = 0
    n_grammar_drafted: int = 0
    n_grammar_accepted: int = 0
    n_model_drafted: int = 0
    n_model_accepted: int = 0
    is_from_own: bool = False
    """Whether the branch of the turn began as a copy of another branch of the same session."""


def reported_reason(reason: int, n_prompt: int, n_reused: int) -> int:
    """Returns the reason to report for a turn. Any two prompts of a model share the first few tokens, which the
    template writes. If a session copied only these tokens from another session, the reason is reported as `new`
    instead of `shared`.
    """
    is_little = n_reused < min(limits.SHARED_TOKENS_SHOWN_MIN, n_prompt / 10)
    return _NEW if reason == _SHARED and is_little else reason


def reason_text(reason: int, n_reused: int, *, is_from_own: bool) -> str:
    """Returns the sentence for a reported reason. The reason `shared` has two sentences. One is for a copy of another
    session, the other for a copy of another branch of the same session. The reason `new` has another sentence if the
    first few tokens were copied, because the number of reused tokens would seem to contradict the usual one.
    """
    if reason == _NEW and n_reused > 0:
        return _FEW_COPIED
    return _FROM_OWN if reason == _SHARED and is_from_own else REASON_TEXTS[reason]


def scratch_id(entry: int) -> str:
    """Returns an id for a branch that serves requests without a session. Lists of sessions show this id. `entry` is the
    branch's entry. No session can have such an id, because session ids have no spaces.
    """
    return f"(scratch {entry})"


@dataclass(slots=True)
class SessionTurns:
    """The turns of one session. If a session is forgotten while one of its requests runs, the log drops this object.
    The request then still adds its turn to this object. So the turn does not appear in a new session of the same name.
    """

    turns: deque[Turn] = field(default_factory=lambda: deque(maxlen=limits.TURNS_PER_SESSION_MAX))
    entries: set[int] = field(default_factory=set)
    by_user: UserMessages = UserMessages()
    client: str = ""
    """The program that sent the last request."""
    last_words: str = ""
    """The beginning of the last user message."""


@dataclass(frozen=True, slots=True)
class TurnTrace:
    log: SessionTurns | None
    """None if the request has no session."""
    matches: dict[int, BranchMatch]
    owner: int


class TurnLog:
    def __init__(self, session_table: SessionTable) -> None:
        self._session_table = session_table
        self._sessions: OrderedDict[tuple[int, str], SessionTurns] = OrderedDict()

    # --- a request arrives -------------------------------------------------------------------------------------------

    def begin_trace(self, owner: int, name: str, prompt: bytes) -> TurnTrace:
        """Compares the prompt with the tokens of each idle branch of the session. Called when the request has arrived,
        before it is queued.
        """
        if not name:
            return TurnTrace(None, {}, owner)
        found = self._of(owner, name)
        matches = self._matches(found.entries, owner, name, prompt)
        if not matches:
            found.entries = self._session_table.entries_of(owner, name)
            matches = self._matches(found.entries, owner, name, prompt)
        return TurnTrace(found, matches, owner)

    def _matches(self, entries: set[int], owner: int, name: str, prompt: bytes) -> dict[int, BranchMatch]:
        found = {}
        for entry in entries:
            view = self._session_table.session(entry)
            if view is None or (view.owner, view.name) != (owner, name):
                continue
            tokens = self._session_table.tokens(entry) if view.state not in _BUSY and not view.n_waiting else None
            if tokens is not None:
                found[entry] = match_of(tokens.tobytes(), prompt)
        return found

    def _of(self, owner: int, name: str) -> SessionTurns:
        found = self._sessions.setdefault((owner, name), SessionTurns())
        self._sessions.move_to_end((owner, name))
        while len(self._sessions) > limits.TURN_SESSIONS_MAX:
            self.forget(*pick_eviction_victim(self._sessions))
        return found

    def came_from(self, owner: int, name: str, entry: int, client: str, last_words: str) -> None:
        """Records the program that sent a request, and the beginning of its last user message. `entry` is the entry of
        the request's branch.
        """
        found = self._of(owner, name or scratch_id(entry))
        found.client, found.last_words = client, last_words

    def refused(self, owner: int, name: str, at_ms: int, n_prompt: int) -> None:
        """Records a request that did not fit the context, if the session has other turns."""
        found = self._sessions.get((owner, name))
        if found is not None:
            found.turns.append(
                Turn(
                    at_ms=at_ms, entry=None, reason=None, outcome=OUTCOME_WORDS[Outcome.REFUSED], n_prompt=n_prompt,
                    n_reused=0, n_prefilled=0, n_generated=0, divergence=None,
                )
            )  # fmt: skip

    # --- a request starts --------------------------------------------------------------------------------------------

    def started(self, trace: TurnTrace, by_user: UserMessages) -> None:
        """Records where the user messages begin in the session's new prompt. Not called for a refused request, because
        such a request does not change the session.
        """
        if trace.log is not None:
            trace.log.by_user = by_user

    # --- a request has ended -----------------------------------------------------------------------------------------

    def add(self, trace: TurnTrace, turn: Turn) -> None:
        if trace.log is not None:
            trace.log.turns.append(turn)
            if turn.entry is not None:
                trace.log.entries.add(turn.entry)
        elif turn.entry is not None:
            self._of(trace.owner, scratch_id(turn.entry)).turns.append(turn)

    # --- queries -----------------------------------------------------------------------------------------------------

    def story(self, owner: int, name: str) -> list[Turn]:
        """Returns the turns, the oldest first."""
        return list(self._known(owner, name).turns)

    def is_from_own(self, owner: int, name: str, entry: int, n_prompt: int, n_reused: int) -> bool:
        """Returns whether the branch in this entry began its last turn as a copy of another branch of the same session.
        `n_prompt` and `n_reused` are the numbers that the session table shows for the branch's last turn. A turn is
        recorded at its end. So the result is False during that turn. Can be called in any thread.
        """
        last = next((turn for turn in reversed(self.story(owner, name)) if turn.entry == entry), None)
        return last is not None and last.is_from_own and (last.n_prompt, last.n_reused) == (n_prompt, n_reused)

    def client(self, owner: int, name: str) -> str | None:
        """Returns the program that sent the last request. Can be called in any thread."""
        return self._known(owner, name).client or None

    def last_words(self, owner: int, name: str) -> str | None:
        """Returns the beginning of the last user message. Can be called in any thread."""
        return self._known(owner, name).last_words or None

    def reported(self, owner: int, name: str) -> tuple[str, str, Turn | None]:
        """Returns the objects on which the report of a session depends, besides the session table: the client, the last
        words and the last turn. Can be called in any thread.
        """
        found = self._known(owner, name)
        return found.client, found.last_words, found.turns[-1] if found.turns else None

    def by_user(self, owner: int, name: str) -> UserMessages:
        """Returns where the user messages begin in the session's last prompt, or an empty UserMessages if this is not
        known.
        """
        return self._known(owner, name).by_user

    def _known(self, owner: int, name: str) -> SessionTurns:
        return self._sessions.get((owner, name)) or SessionTurns()

    def renamed(self, owner: int, name: str, new_name: str) -> None:
        found = self._sessions.pop((owner, name), None)
        if found is not None:
            self._sessions[(owner, new_name)] = found

    def forget(self, owner: int, name: str) -> None:
        self._sessions.pop((owner, name), None)
