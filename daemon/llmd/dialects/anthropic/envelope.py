"""How an error travels to Anthropic's clients."""

from __future__ import annotations

import msgspec

from ...core.errors import ApiError, ContextLengthError
from ...http.envelope import Envelope
from .wire import MessageError, MessageErrorBody

_STATUSES = {503: 529}
"""Their word for a server that is busy, which they wait for and ask again."""
_TYPES = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    408: "timeout_error",
    409: "conflict_error",
    413: "request_too_large",
    429: "rate_limit_error",
    503: "overloaded_error",
}


def error_of(error: ApiError) -> MessageError:
    return MessageError(error=MessageErrorBody(_type_of(error.status), _message_of(error), error.code, error.param))


def _type_of(status: int) -> str:
    return _TYPES.get(status) or ("api_error" if status >= 500 else "invalid_request_error")


def _message_of(error: ApiError) -> str:
    """Agents recognise the overflow by this text, its numbers too."""
    if isinstance(error, ContextLengthError):
        return f"prompt is too long: {error.n_tokens} tokens > {error.n_ctx} maximum. {error.message}"
    return error.message


ENVELOPE = Envelope(MessageError, lambda error: msgspec.json.encode(error_of(error)), _STATUSES)
