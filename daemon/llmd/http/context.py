"""State that web handlers share: the state of the daemon, and the facts about one request."""

from __future__ import annotations

import asyncio
import re
import secrets
import time
from dataclasses import dataclass, field

from aiohttp import web

from ..answers.database import Database
from ..answers.memory import AnswerMemory
from ..answers.stored import SavedAnswers
from ..core import limits
from ..core.errors import ApiError
from ..core.session_key import SessionKey
from ..core.shares import Admission
from ..engine.engine import Engine
from ..engine.generation import Generation
from ..pipeline.answering import Answering
from ..pipeline.services import Services
from ..process.config_table import Config
from ..process.progress import Heartbeat, Loading
from ..turns.log import TurnLog
from .access import ANYBODY, Caller, KeyRing
from .envelope import Envelope
from .metrics import Metrics

REQUEST_ID_HEADER = "X-Request-Id"
"""The id of a request, in the headers of the request and of its answer. OpenAI's packages show it as `_request_id`."""
ANTHROPIC_ID_HEADER = "Request-Id"
ANTHROPIC_VERSION = "Anthropic-Version"
"""A header that Anthropic's clients send with every request."""
_REQUEST_ID = re.compile(r"[A-Za-z0-9._:/+-]{1,128}")
"""Ids that need no quoting in a log line."""


@dataclass(slots=True, kw_only=True)
class LoadedModel:
    services: Services
    heartbeat: Heartbeat
    model_id: str
    database: Database | None = None
    saved_answers: SavedAnswers | None = None
    """None, like `database`, if no state directory is set."""


@dataclass(slots=True, kw_only=True)
class State:
    """State of the application, created before the model is loaded. Owned by the event loop."""

    config: Config
    keys: KeyRing
    metrics: Metrics
    loading: Loading
    created: int
    loaded_model: LoadedModel | None = None
    admission: Admission = field(default_factory=lambda: Admission(limits.LIVE_REQUESTS_MAX))
    is_stopping: bool = False
    preparing: set[asyncio.Timeout] = field(default_factory=set)
    """Deadlines of requests that are being read or rendered."""
    users: set[int] = field(default_factory=set)
    """Owners that have sent a body. Used only if no keys are set."""

    def stop(self) -> None:
        """Refuses new requests from now on."""
        self.is_stopping = True
        for scope in self.preparing:
            if not scope.expired():
                scope.reschedule(asyncio.get_running_loop().time())

    def use_keys(self, keys: KeyRing) -> None:
        self.keys = keys
        self._share()

    @property
    def n_owners(self) -> int:
        """The number of owners that share the limits."""
        return max(1, len(self.users)) if self.keys.is_open else self.keys.n_owners

    def take_part(self, caller: Caller) -> None:
        """Counts the caller as an owner that needs a share of the limits, if no keys are set. Administrators need no
        share.
        """
        is_new = self.keys.is_open and not caller.is_admin and caller.owner not in self.users
        if is_new and len(self.users) < limits.KEYS_MAX:
            self.users.add(caller.owner)
            self._share()

    def _share(self) -> None:
        self.admission.n_owners = self.n_owners
        if self.loaded_model is not None:
            self.engine.set_owners(self.n_owners)

    @property
    def loaded(self) -> LoadedModel:
        """The loaded model. This property and the properties below raise ApiError while the model is loading."""
        if self.loaded_model is None:
            raise ApiError("model_loading")
        return self.loaded_model

    @property
    def services(self) -> Services:
        return self.loaded.services

    @property
    def engine(self) -> Engine:
        return self.services.engine

    @property
    def turns(self) -> TurnLog:
        return self.services.turns

    @property
    def answers(self) -> AnswerMemory:
        return self.services.answers

    @property
    def model_id(self) -> str:
        return self.loaded.model_id

    def is_in_use(self, owner: int, session: str) -> bool:
        """Returns whether this session of this owner has a live generation."""
        return any(
            isinstance(one, Generation) and (one.work.owner, one.work.key.id) == (owner, session)
            for one in self.engine.live()
        )

    @property
    def fingerprint(self) -> str:
        return "llmd-" + self.engine.info.fingerprint[:12]


UNMATCHED = "unmatched"
"""The name that log lines and metrics use as the endpoint of an unknown path."""


@dataclass(slots=True)
class Facts:
    """Facts of one request, for its log line and its metrics."""

    id: str
    """The result of `request_id`."""
    caller: Caller = ANYBODY
    endpoint: str = UNMATCHED
    came_at: float = 0.0
    """Arrival as a time of the event loop."""
    n_body_bytes: int = 0
    n_stored_bytes: int = 0
    """Bytes of stored items that the body refers to."""
    answering: Answering | None = None
    key: SessionKey | None = None
    """The session of the request. None if the request generates no answer, or was refused before its session was known.
    """
    error: ApiError | None = None
    """The error with which the request was refused."""
    cors_origin: str | None = None
    client: dict[str, object] = field(default_factory=dict)
    """The client, for the log line."""
    came_s: float = field(default_factory=time.monotonic)

    @property
    def is_large(self) -> bool:
        """Whether to parse and render this request in a text thread, because that work grows with the size of the
        request.
        """
        return self.n_bytes > limits.TEXT_SHORT_BYTES

    @property
    def n_bytes(self) -> int:
        """Bytes of the request, including the stored items that it refers to."""
        return self.n_body_bytes + self.n_stored_bytes


STATE = web.AppKey("state", State)
PUBLIC = web.AppKey("public", frozenset[str])
"""Endpoints that need no key, without /v1."""
ENVELOPES = web.AppKey("envelopes", dict[str, Envelope])
"""The envelopes of errors by endpoint, without /v1."""
OPENAPI = web.AppKey("openapi", bytes)
FACTS = web.RequestKey("facts", Facts)
USER = web.RequestKey("user", int)
"""The user of the client's end of the connection, if it is known."""


def request_id(client_id: str | None) -> str:
    """Returns the id that the client sent if the id is valid, otherwise a new id."""
    if client_id is not None and _REQUEST_ID.fullmatch(client_id):
        return client_id
    return f"req_{secrets.token_hex(12)}"
