"""One row of the endpoint table."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from aiohttp import web

from .. import framing
from ..envelope import OWN, Envelope
from ..framing import Framing
from .failures import BODY, EVERYWHERE, KEYED

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
VERSION_PREFIX = "/v1"


@dataclass(frozen=True, slots=True)
class Endpoint:
    method: str
    path: str
    """The documented path. The same path with /v1 added or removed is served, too."""
    handler: Handler
    summary: str
    answer: type[Any] | None
    takes: type[Any] | None = None
    is_public: bool = False
    media: str = "application/json"
    generates: bool = False
    """Whether the endpoint generates an answer, streamed or not, in a session."""
    framing: Framing = framing.EVENTS
    """Framing of the endpoint's stream."""
    envelope: Envelope = OWN
    """Envelope of the endpoint's errors."""
    id_spans_slashes: bool = False
    """Whether {id} stands for the whole rest of the path, including slashes."""
    failures: tuple[str, ...] = ()
    """Codes (errors.CODES) of the endpoint's errors, in addition to the codes of every endpoint and of every body."""

    @property
    def codes(self) -> frozenset[str]:
        keyed = () if self.is_public else KEYED
        return frozenset((*EVERYWHERE, *keyed, *(BODY if self.takes else ()), *self.failures))

    @property
    def spellings(self) -> tuple[str, str]:
        bare = self.path.removeprefix(VERSION_PREFIX)
        return bare, VERSION_PREFIX + bare

    @property
    def routes(self) -> tuple[str, ...]:
        """The paths to register with the router: with and without /v1, with and without a slash at the end."""
        if self.id_spans_slashes:
            return tuple(path.replace("{id}", "{id:.+}") for path in self.spellings)
        paths = (path.replace("{id}", "{id:[^/]+}") for path in self.spellings)  # aiohttp's {id} matches no braces
        return tuple(dict.fromkeys(path for bare in paths for path in (bare, f"{bare.rstrip('/')}/")))
