"""What answers are made with."""

from __future__ import annotations

from dataclasses import dataclass

from ..answers.memory import AnswerMemory
from ..core.asked import HistoryMode
from ..engine.engine import Engine
from ..turns.log import TurnLog


@dataclass(frozen=True, slots=True, kw_only=True)
class Served:
    """The model, what is remembered of its sessions, and what the operator has chosen."""

    engine: Engine
    answers: AnswerMemory
    turns: TurnLog
    history: HistoryMode
    """Of sessions for which nothing else was asked."""
    scratch_reuse: bool
    """Whether requests without a session may begin with what such requests left."""


@dataclass(frozen=True, slots=True)
class Sender:
    """Who asked, and how large the request was: work that grows with it belongs into a text thread."""

    owner: int
    n_bytes: int
    is_large: bool
