"""What the web handlers share: the daemon's state, and the facts of one request."""

from __future__ import annotations

from dataclasses import dataclass, field

from aiohttp import web

from ..access import ANYBODY, Caller, KeyRing
from ..engine import Engine
from ..generation import Generation
from ..history import Histories
from ..metrics import Metrics
from ..options import Config
from ..progress import Progress
from ..turns import Turns


@dataclass(slots=True, kw_only=True)
class State:
    """One per application, made when its engine is open. Owned by the event loop."""

    config: Config
    engine: Engine
    keys: KeyRing
    metrics: Metrics
    progress: Progress
    turns: Turns
    model_id: str
    created: int
    histories: Histories = field(default_factory=Histories)
    is_stopping: bool = False

    @property
    def fingerprint(self) -> str:
        return "llmd-" + self.engine.info.fingerprint[:12]


@dataclass(slots=True)
class Facts:
    """What is known about one request: for its log line and its metrics."""

    caller: Caller = ANYBODY
    endpoint: str = "unmatched"
    generation: Generation | None = None
    error_code: str | None = None
    cors_origin: str | None = None
    extra: dict[str, object] = field(default_factory=dict)


STATE = web.AppKey("state", State)
PUBLIC = web.AppKey("public", frozenset[str])
"""Endpoints that need no key, without their /v1."""
OPENAPI = web.AppKey("openapi", bytes)
FACTS = web.RequestKey("facts", Facts)
