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
    """The documented path. The other spelling, with or without /v1, is served too."""
    handler: Handler
    summary: str
    answer: type[Any] | None
    takes: type[Any] | None = None
    is_public: bool = False
    media: str = "application/json"
    generates: bool = False
    """The endpoint generates an answer in a session, streamed or not."""
    framing: Framing = framing.EVENTS
    """Framing of the endpoint's stream."""
    envelope: Envelope = OWN
    """Envelope of the endpoint's errors."""
    id_spans_slashes: bool = False
    """{id} is the rest of the path, including slashes."""
    failures: tuple[str, ...] = ()
    """Codes of errors.CODES, in addition to those of every endpoint and of every body."""

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
        """Returns the path's spellings in the router's form, with and without a slash at the end."""
        if self.id_spans_slashes:
            return tuple(path.replace("{id}", "{id:.+}") for path in self.spellings)
        paths = (path.replace("{id}", "{id:[^/]+}") for path in self.spellings)  # aiohttp's own {id} has no braces
        return tuple(dict.fromkeys(path for bare in paths for path in (bare, f"{bare.rstrip('/')}/")))
