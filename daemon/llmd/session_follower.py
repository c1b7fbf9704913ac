"""Updates the answers and turns that the daemon remembers of a session, each time the engine has changed the session.

The engine reports the changes of sessions in the order in which they happen. So the remembered answers and turns of a
session name never belong to an earlier session of the same name. A change is also reported if the client that requested
it has disconnected. The event loop owns all objects of this module.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from .answers.memory import AnswerMemory
from .engine.wire import Close, Fork, Load, Question, Rename, Reset
from .turns.log import TurnLog


@dataclass(frozen=True, slots=True)
class SessionFollower:
    """Receives the changes of all sessions from the engine (implements engine.Watcher)."""

    answers: AnswerMemory
    turns: TurnLog
    is_in_use: Callable[[int, str], bool]
    """Takes an owner and a session name. Returns whether a generation of this session is waiting or running."""

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
        """Forgets the answers and turns of a session that the engine has forgotten. Exception: forgets nothing if a
        request already uses a new session of this name.
        """
        if not self.is_in_use(owner, session):
            self._forget(owner, session)

    def _forget(self, owner: int, name: str) -> None:
        self.turns.forget(owner, name)
        self.answers.forget(owner, name)
