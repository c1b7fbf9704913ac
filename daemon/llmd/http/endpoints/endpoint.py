"""Declares `Endpoint`, one row of the table of all endpoints (routes.py)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from aiohttp import web

from .. import framing
from ..envelope import OWN, Envelope
from ..framing import Framing
from .failures import BODY, EVERYWHERE, KEYED, WAITS

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
VERSION_PREFIX = "/v1"
CHAT, TEXT_COMPLETION = "chat", "text_completion"
"""Operations, with OpenTelemetry's words for them (gen_ai.operation.name)."""


@dataclass(frozen=True, slots=True)
class Endpoint:
    method: str
    path: str
    """The documented path. llmd also serves this path with /v1 added or removed."""
    handler: Handler
    summary: str
    answer: type[Any] | None
    takes: type[Any] | None = None
    is_public: bool = False
    media: str = "application/json"
    other_media: str = ""
    """The media type of the answer to clients that do not accept `media`, if that type differs from `media`."""
    generates: str = ""
    """Kind of text that the endpoint generates: CHAT or TEXT_COMPLETION. Empty if it generates nothing."""
    framing: Framing = framing.EVENTS
    """The form of the endpoint's streams: server-sent events or lines."""
    envelope: Envelope = OWN
    """The form of the endpoint's error answers."""
    id_spans_slashes: bool = False
    """True if {id} stands for the whole rest of the path, including slashes."""
    unready: type[Any] | None = None
    """Type of the body of an answer with status 503, if it is not the endpoint's error envelope."""
    failures: tuple[str, ...] = ()
    """Codes of errors (errors.CODES) that this endpoint can return. Codes that `codes` adds are left out, such as those
    that every endpoint can return.
    """

    @property
    def codes(self) -> frozenset[str]:
        keyed = () if self.is_public else KEYED
        waiting = WAITS if self.waits_for_model else ()
        return frozenset((*EVERYWHERE, *keyed, *waiting, *(BODY if self.takes else ()), *self.failures))

    @property
    def waits_for_model(self) -> bool:
        """True if requests wait while the model loads. Requests of llmctl and requests without a body, such as requests
        for lists, are refused instead, because people and monitors want an answer at once.
        """
        return self.takes is not None and not self.path.startswith("/v1/sessions/")

    @property
    def spellings(self) -> tuple[str, str]:
        bare = self.path.removeprefix(VERSION_PREFIX)
        return bare, VERSION_PREFIX + bare

    @property
    def routes(self) -> tuple[str, ...]:
        """The paths to register with aiohttp's router. There is a path with /v1 and a path without, each with and
        without a slash at the end.
        """
        if self.id_spans_slashes:
            return tuple(path.replace("{id}", "{id:.+}") for path in self.spellings)
        # aiohttp's {id} would not match an id with braces.
        paths = (path.replace("{id}", "{id:[^/]+}") for path in self.spellings)
        return tuple(dict.fromkeys(path for bare in paths for path in (bare, f"{bare.rstrip('/')}/")))
