"""The envelope of errors: the form of an error's body. A dialect can have an envelope of its own (Endpoint.envelope).
OWN is the envelope of all other endpoints.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import msgspec

from ..core.errors import ApiError


@dataclass(frozen=True, slots=True)
class Envelope:
    kind: type[msgspec.Struct]
    """Type of the error body, for /openapi.json."""
    body: Callable[[ApiError], bytes]
    statuses: Mapping[int, int] = field(default_factory=dict)
    """Statuses of the error table (errors.CODES) that this envelope replaces, with the statuses that the dialect's
    clients expect.
    """

    def status(self, status: int) -> int:
        return self.statuses.get(status, status)


class ErrorBody(msgspec.Struct, frozen=True):
    """An error in OpenAI's form."""

    message: str
    type: str
    code: str
    param: str | None


class ErrorEnvelope(msgspec.Struct, frozen=True):
    error: ErrorBody


def _body(error: ApiError) -> bytes:
    body = ErrorBody(message=error.message, type=error.kind.type, code=error.code, param=error.param)
    return msgspec.json.encode(ErrorEnvelope(error=body))


OWN = Envelope(ErrorEnvelope, _body)
