"""Objects that every step of the pipeline uses."""

from __future__ import annotations

from dataclasses import dataclass

from ..answers.memory import AnswerMemory
from ..core.generation_request import HistoryMode
from ..engine.engine import Engine
from ..turns.log import TurnLog


@dataclass(frozen=True, slots=True, kw_only=True)
class Services:
    """The engine, the memory of answers, the log of turns, and the operator's options."""

    engine: Engine
    answers: AnswerMemory
    turns: TurnLog
    history: HistoryMode
    """The mode of sessions for which the client has not chosen one."""
    scratch_reuse: bool
    """Whether requests without a session may reuse the tokens of earlier ones."""


@dataclass(frozen=True, slots=True)
class Sender:
    """The owner and the size of a request. The size decides whether its work belongs into a text thread."""

    owner: int
    n_bytes: int
    is_large: bool
