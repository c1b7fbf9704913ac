"""An envelope is the JSON form of the body of an error answer. The endpoints of a dialect can have an envelope of their
own (Endpoint.envelope). OWN is the envelope of all other endpoints.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import msgspec

from ..core.errors import ApiError
from .framing import event


@dataclass(frozen=True, slots=True)
class Envelope:
    kind: type[msgspec.Struct]
    """Type of the error body, for /openapi.json."""
    body: Callable[[ApiError], bytes]
    event: Callable[[ApiError], bytes]
    """Makes the only frame of a stream that fails before any part of the answer was sent."""
    statuses: Mapping[int, int] = field(default_factory=dict)
    """Maps a status of the error table (errors.CODES) to the status that the dialect's clients expect. Contains only
    statuses that differ.
    """

    def status(self, status: int) -> int:
        return self.statuses.get(status, status)


class ErrorBody(msgspec.Struct, frozen=True):
    """An error in the form of OpenAI's API."""

    message: str
    type: str
    code: str
    param: str | None


class ErrorEnvelope(msgspec.Struct, frozen=True):
    error: ErrorBody


def _body(error: ApiError) -> bytes:
    body = ErrorBody(message=error.message, type=error.kind.type, code=error.code, param=error.param)
    return msgspec.json.encode(ErrorEnvelope(error=body))


OWN = Envelope(ErrorEnvelope, _body, lambda error: event(_body(error)))
