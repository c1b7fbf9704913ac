"""The objects that all steps of the pipeline use."""

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
    """The history mode (--history) of sessions for which the client has not chosen a mode."""
    scratch_reuse: bool
    """Whether requests without a session can reuse states of earlier requests without a session."""


@dataclass(frozen=True, slots=True)
class Sender:
    """The owner and the size of a request. Work on a large request is done in a text thread, not on the event loop."""

    owner: int
    n_bytes: int
    is_large: bool
