"""State that the HTTP handlers share: `State` for the whole daemon, and `Facts` about one request."""

from __future__ import annotations

import asyncio
import re
import secrets
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

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
from .framing import Framing
from .metrics import Metrics

if TYPE_CHECKING:
    from .traces import RequestTrace

REQUEST_ID_HEADER = "X-Request-Id"
"""The id of a request, in the headers of the request and of its answer. OpenAI's packages show it as `_request_id`."""
ANTHROPIC_ID_HEADER = "Request-Id"
ANTHROPIC_VERSION = "Anthropic-Version"
"""A header that Anthropic's clients send with every request."""
_REQUEST_ID = re.compile(r"[A-Za-z0-9._:/+-]{1,128}")
"""Matches request ids that a log line can contain without quotes."""


@dataclass(slots=True, kw_only=True)
class LoadedModel:
    services: Services
    heartbeat: Heartbeat
    model_id: str
    path: str = ""
    """Path of the served file. For a simulated model, its name (sim:...)."""
    database: Database | None = None
    saved_answers: SavedAnswers | None = None
    """None if no state directory is set. `database` is then None, too."""


@dataclass(slots=True, kw_only=True)
class State:
    """State of the daemon, created before the model is loaded. The event loop owns this object."""

    config: Config
    keys: KeyRing
    metrics: Metrics
    loading: Loading
    created: int
    loaded_model: LoadedModel | None = None
    admission: Admission = field(default_factory=lambda: Admission(limits.LIVE_REQUESTS_MAX))
    is_stopping: bool = False
    leaving: asyncio.Event = field(default_factory=asyncio.Event)
    """Set by the first signal that stops the daemon, and by POST /v1/drain."""
    preparing: set[asyncio.Timeout] = field(default_factory=set)
    """The timeouts of requests that are being received, rendered or tokenized (body.in_time)."""
    users: set[int] = field(default_factory=set)
    """Owners that have sent the body of a request. If no keys are set, the limits are shared between these owners."""

    def stop(self) -> None:
        """Refuses new requests from now on, and requests that are still being received, rendered or tokenized."""
        self.is_stopping = True
        for scope in self.preparing:
            if not scope.expired():
                scope.reschedule(asyncio.get_running_loop().time())

    def drain(self) -> None:
        """Refuses new requests from now on, and ends the daemon when the running requests have ended."""
        self.stop()
        self.leaving.set()

    def use_keys(self, keys: KeyRing) -> None:
        self.keys = keys
        self._share()

    @property
    def n_owners(self) -> int:
        """The number of owners, each of which gets an equal share of the limits."""
        return max(1, len(self.users)) if self.keys.is_open else self.keys.n_owners

    def take_part(self, caller: Caller) -> None:
        """If no keys are set, counts the caller as an owner that gets a share of the limits. Administrators get no
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
        """The loaded model. While the model is loading, this property and the properties below raise ApiError."""
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
        """Returns whether a generation of this session of this owner waits or runs."""
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
    """The id of the request (`request_id`)."""
    caller: Caller = ANYBODY
    endpoint: str = UNMATCHED
    came_at: float = 0.0
    """Time of the event loop at which the request arrived."""
    n_body_bytes: int = 0
    n_stored_bytes: int = 0
    """Bytes of the stored items to which the body refers (Responses API)."""
    answering: Answering | None = None
    key: SessionKey | None = None
    """The session id of the request. None if the request generates nothing, or was refused before the id was known."""
    body: bytes | None = None
    """The body, if it was received while the model was loading, before the handler was called."""
    begun: web.StreamResponse | None = None
    """The stream, if it began while the model was loading."""
    error: ApiError | None = None
    """The error with which the request was refused."""
    cors_origin: str | None = None
    trace: RequestTrace | None = None
    """The facts for the request's span. None if --otel-endpoint is not set, or if the request generates nothing."""
    client: dict[str, object] = field(default_factory=dict)
    """The fields of the log line that identify the client."""
    came_s: float = field(default_factory=time.monotonic)

    @property
    def is_large(self) -> bool:
        """True if the request is too large for the event loop. A text thread must then parse and render it. In the
        event loop, this work would delay other requests.
        """
        return self.n_bytes > limits.TEXT_SHORT_BYTES

    @property
    def n_bytes(self) -> int:
        """Bytes of the request's body and of the stored items that the body refers to."""
        return self.n_body_bytes + self.n_stored_bytes


STATE = web.AppKey("state", State)
PUBLIC = web.AppKey("public", frozenset[str])
"""Paths, without /v1, of the endpoints that need no API key."""
WAITING = web.AppKey("waiting", dict[str, Framing | None])
"""The endpoints whose requests wait while the model loads. Maps the path of an endpoint, without /v1, to the framing of
its streams. An endpoint without streams has None.
"""
OPENING = web.AppKey("opening", asyncio.Task[None])
"""The task that loads the model. The task fails with an EngineError if the model cannot be loaded."""
OPERATIONS = web.AppKey("operations", dict[str, str])
"""Value of `Endpoint.generates` for each endpoint that generates, by the path of the endpoint without /v1."""
ENVELOPES = web.AppKey("envelopes", dict[str, Envelope])
"""The error envelope of each endpoint, by the endpoint's path without /v1."""
OPENAPI = web.AppKey("openapi", bytes)
FACTS = web.RequestKey("facts", Facts)
USER = web.RequestKey("user", int)
"""User id of the client's program, if the kernel knows it."""


def request_id(client_id: str | None) -> str:
    """Returns the id that the client sent if the id is valid, otherwise a new id."""
    if client_id is not None and _REQUEST_ID.fullmatch(client_id):
        return client_id
    return f"req_{secrets.token_hex(12)}"
