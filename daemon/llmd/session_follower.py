"""Keeps the answers and turns that the daemon has for a session consistent with the engine's session.

The engine reports changes of sessions in order, so that answers and turns never belong to a session that has been
replaced. The engine also reports a change whose client no longer waits. Owned by the event loop.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from .answers.memory import AnswerMemory
from .engine.wire import Close, Fork, Load, Question, Rename, Reset
from .turns.log import TurnLog


@dataclass(frozen=True, slots=True)
class SessionFollower:
    """Receives the changes of all sessions (engine.Watcher)."""

    answers: AnswerMemory
    turns: TurnLog
    is_in_use: Callable[[int, str], bool]
    """Returns whether the session of this owner has a live generation."""

    def on_done(self, command: Question) -> None:
        owner = command.owner
        match command:
            case Reset() | Close() | Load():
                self._forget(owner, command.session)
            case Fork():
                self.turns.forget(owner, command.new_session)
                self.answers.copy(owner, command.session, command.new_session)
            case Rename():
                self.turns.renamed(owner, command.session, command.new_session)
                self.answers.rename(owner, command.session, command.new_session)

    def on_forgotten(self, owner: int, session: str) -> None:
        """Forgets the session's answers and turns, unless the session is in use again."""
        if not self.is_in_use(owner, session):
            self._forget(owner, session)

    def _forget(self, owner: int, name: str) -> None:
        self.turns.forget(owner, name)
        self.answers.forget(owner, name)
