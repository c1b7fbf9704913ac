"""All errors of requests. One table has the HTTP status, the type and the sentence of each error code.

Most words of `llm_status` (llm_words.h) are also error codes. So most statuses of the engine need no translation.
`_STATUS_CODES` translates the others.
"""

from __future__ import annotations

import reprlib
from dataclasses import dataclass
from typing import TypeVar

import msgspec

from . import limits

INVALID = "invalid_request_error"
AUTHENTICATION = "authentication_error"
PERMISSION = "permission_error"
NOT_FOUND = "not_found_error"
RATE = "rate_limit_error"
SERVER = "server_error"


@dataclass(frozen=True, slots=True)
class Kind:
    status: int
    type: str
    text: str


CODES: dict[str, Kind] = {
    # Errors in the client's request.
    "invalid_http": Kind(400, INVALID, "The request is not valid HTTP."),
    "invalid_json": Kind(400, INVALID, "The body is not valid JSON."),
    "invalid_type": Kind(400, INVALID, "A field has the wrong type."),
    "invalid_value": Kind(400, INVALID, "A field has a value outside its range."),
    "missing_parameter": Kind(400, INVALID, "A required field is missing."),
    "unsupported_parameter": Kind(400, INVALID, "This parameter is not supported."),
    "invalid_session_id": Kind(
        400,
        INVALID,
        f"A session id is 1 to {limits.SESSION_ID_CHARS_MAX} printable ASCII characters without spaces.",
    ),
    "context_length_exceeded": Kind(400, INVALID, "The prompt does not fit the model's context."),
    "template_failed": Kind(400, INVALID, "The model's chat template could not be rendered for these messages."),
    "previous_response_not_found": Kind(
        400, INVALID, "The previous response is not stored: it was never stored, or llmd has removed it."
    ),
    "no_embeddings": Kind(400, INVALID, "This model does not support embeddings."),
    "no_generation": Kind(400, INVALID, "This model makes embeddings and cannot generate text."),
    "invalid_token": Kind(400, INVALID, "A token id is outside the model's vocabulary."),
    "invalid_api_key": Kind(
        401, AUTHENTICATION, "The request has no valid API key. Send the header Authorization: Bearer KEY."
    ),
    "admin_required": Kind(403, PERMISSION, "Only administrators can do this. Use an admin key or the unix socket."),
    "forbidden_host": Kind(
        403,
        PERMISSION,
        "The Host header does not name this server. Start llmd with --allowed-hosts to allow more names.",
    ),
    "forbidden_origin": Kind(
        403,
        PERMISSION,
        "Requests from this web origin are not allowed. Start llmd with --allowed-origins to allow them.",
    ),
    "not_found": Kind(404, NOT_FOUND, "This path does not exist. GET /openapi.json lists all paths."),
    "session_not_found": Kind(404, NOT_FOUND, "This session does not exist."),
    "response_not_found": Kind(
        404, INVALID, "The response is not stored: it was never stored, or llmd has removed it."
    ),
    "snapshot_not_found": Kind(404, NOT_FOUND, "No session is saved under this name. GET /v1/saved lists the names."),
    "method_not_allowed": Kind(405, INVALID, "This path does not support this HTTP method."),
    "deadline_exceeded": Kind(408, INVALID, "The request took longer than the server allows and was cancelled."),
    "request_timeout": Kind(408, INVALID, "The request did not arrive in time."),
    "ambiguous_session": Kind(
        409, INVALID, "Several owners have a session with this id. Name the owner: ?owner=NAME (llmctl: --owner NAME)."
    ),
    "session_busy": Kind(409, INVALID, "A request is using the session. Try again after the request has ended."),
    "session_exists": Kind(409, INVALID, "Another session has this id."),
    "snapshot_refused": Kind(
        409,
        INVALID,
        "The saved session is damaged or belongs to another model. llmd has renamed the file and does not use it.",
    ),
    "nothing_to_save": Kind(409, INVALID, "The session is empty: there is nothing to save."),
    "no_state_dir": Kind(
        409, INVALID, "The server keeps sessions in memory only. Start llmd with --state-dir to save sessions."
    ),
    "request_too_large": Kind(413, INVALID, "The body exceeds a limit of the server."),
    "unsupported_encoding": Kind(
        415, INVALID, "Compressed bodies are not supported: send the body without Content-Encoding."
    ),
    "expectation_failed": Kind(417, INVALID, "The only supported value of Expect is 100-continue."),
    "headers_too_large": Kind(431, INVALID, "The request line or the headers exceed a limit of the server."),
    # The daemon has reached a limit.
    "capacity_exhausted": Kind(
        429, RATE, "All session entries are taken, and --capacity-policy does not free one. Close a session first."
    ),
    "pins_exhausted": Kind(429, RATE, "The limit on pinned branches is reached. Unpin a session first."),
    "queue_full": Kind(
        429, RATE, "The queue of this session, or of requests that name no session, is full. Try again later."
    ),
    "saved_full": Kind(429, RATE, "The limit on saved sessions is reached. Delete a saved session first."),
    "overloaded": Kind(503, SERVER, "The server has reached its limit of live requests. Try again later."),
    "too_many_connections": Kind(503, SERVER, "The server has reached its limit of connections. Try again later."),
    "unknown_user": Kind(
        503,
        SERVER,
        "The kernel did not report which user of this machine has this connection. Try again later, or start llmd with "
        "--api-key-file.",
    ),
    "kv_cache_full": Kind(
        503,
        SERVER,
        "The KV cache has no room for more tokens of this session. Try again later, "
        "or start llmd with a larger --kv-memory.",
    ),
    "no_memory": Kind(
        503,
        SERVER,
        "The server is short of memory, or too many session states wait to be written to disk. Try again later.",
    ),
    "model_loading": Kind(503, SERVER, "The model is still loading. GET /ready shows the progress."),
    "shutting_down": Kind(503, SERVER, "The server is stopping."),
    # Failures.
    "model_failed": Kind(500, SERVER, "The model could not be loaded. The server's log has the reason."),
    "cancelled": Kind(
        499, INVALID, "The request was cancelled: its session was reset, closed, or replaced by a fork or a load."
    ),
    "slow_reader": Kind(499, INVALID, "The client stopped reading the answer, and the request was cancelled."),
    "model_unavailable": Kind(502, SERVER, "The model could not be downloaded."),
    "constraint_failed": Kind(
        500,
        SERVER,
        "The requested structured output is too large, or impossible with the model's vocabulary.",
    ),
    "step_failed": Kind(500, SERVER, "The model failed a step. The next request prefills the session's tokens again."),
    "torn": Kind(500, SERVER, "The session's state is invalid. Reset the session."),
    "io_error": Kind(500, SERVER, "llmd could not read or write the state directory. The server's log has the reason."),
    "internal_error": Kind(500, SERVER, "Internal error. The server's log has the details."),
}

# Words of llm_status that are not error codes of the API, with the error codes that replace them.
_STATUS_CODES = {"full": "overloaded", "not_found": "session_not_found", "version_mismatch": "snapshot_refused"}


class ApiError(Exception):
    """A refusal or failure of a request, with one of the codes in CODES. An Envelope (http/envelope.py) writes the
    error as the body that an API specifies.
    """

    def __init__(
        self,
        code: str,
        message: str | None = None,
        param: str | None = None,
        retry_after_s: int = limits.RETRY_AFTER_S,
    ) -> None:
        self.code = code
        self.retry_after_s = retry_after_s
        self.kind = CODES[code]
        self.message = message or self.kind.text
        self.param = param
        super().__init__(f"{code}: {self.message}")

    @property
    def status(self) -> int:
        return self.kind.status

    def headers(self) -> dict[str, str]:
        if self.status in (429, 503):
            return {"Retry-After": str(self.retry_after_s)}
        found = {"WWW-Authenticate": "Bearer"} if self.status == 401 else {}
        return {**found, "x-should-retry": "false"} if self.is_final else found

    @property
    def is_final(self) -> bool:
        """Whether the same request would only fail again. The header x-should-retry then tells clients not to repeat
        the request. Without the header, OpenAI's packages would let llmd generate the answer again, and Claude Code
        would repeat a request with a wrong key for three minutes.
        """
        if self.code in ("deadline_exceeded", "constraint_failed", "model_failed"):
            return True
        return self.status < 499 and self.status != 429 and self.code not in ("request_timeout", "session_busy")


class ContextLengthError(ApiError):
    """The request does not fit the context (context_limits.py). Agents recognize this error by its message. Each API
    has another message for it.
    """

    def __init__(self, n_ctx: int, n_tokens: int, message: str, param: str) -> None:
        """`n_tokens` is the smallest context, in tokens, that the request would fit. This size includes one token for
        the answer.
        """
        self.n_ctx = n_ctx
        self.n_tokens = n_tokens
        super().__init__("context_length_exceeded", message, param)


def code_of_status(word: str) -> str:
    """Returns the error code for a word of `llm_status`. Returns internal_error for words that only a defect of the
    daemon can cause.
    """
    code = _STATUS_CODES.get(word, word)
    return code if code in CODES else "internal_error"


Number = TypeVar("Number", int, float)
T = TypeVar("T")


def check_range(param: str, value: Number, low: float, high: float) -> Number:
    """Returns the value if it is within the range. Otherwise raises an ApiError that names the client's parameter, its
    value and the range. NaN is outside every range.
    """
    if not low <= value <= high:
        bounds = " and ".join(f"{bound:g}" if isinstance(bound, float) else str(bound) for bound in (low, high))
        raise invalid_value(param, f"{quoted(value)} is not between {bounds}")
    return value


def check_count(param: str, n: int, most: int, unit: str) -> None:
    """Raises an ApiError that names the client's parameter if the parameter has more than `most` items."""
    if n > most:
        raise invalid_value(param, f"{n} {unit}; at most {most} are allowed")


def required(param: str, value: T | None) -> T:
    """Returns the value. Raises an ApiError that names the client's parameter if the value is missing."""
    if value is None:
        raise missing(param)
    return value


def missing(param: str) -> ApiError:
    return ApiError("missing_parameter", f"{param} is missing.", param)


def invalid_value(param: str, reason: str) -> ApiError:
    """Returns an error about the client's parameter. The message is the parameter's name followed by `reason`."""
    return ApiError("invalid_value", f"{param}: {reason}.", param)


def invalid_type(param: str, reason: str) -> ApiError:
    return ApiError("invalid_type", f"{param}: {reason}.", param)


def unsupported(param: str, reason: str) -> ApiError:
    return ApiError("unsupported_parameter", f"{param}: {reason}.", param)


def quoted(value: object) -> str:
    """Quotes a client's value for an error message. A long value is shortened, and only its shown part is decoded."""
    limit = limits.USER_FIELD_SHOWN_CHARS_MAX
    if isinstance(value, str | bytes):
        text = repr(value[: limit + 1])
    elif isinstance(value, msgspec.Raw):
        text = bytes(memoryview(value)[: 4 * limit + 4]).decode("utf-8", "replace")
    elif isinstance(value, int) and value.bit_length() > limit * 4:
        text = f"a number of {value.bit_length()} bits"
    else:
        text = _REPR.repr(value)
    return text if len(text) <= limit else text[: limit - 1] + "…"


_REPR = reprlib.Repr()
_REPR.maxdict = _REPR.maxlist = _REPR.maxtuple = _REPR.maxset = 8
_REPR.maxstring = _REPR.maxother = _REPR.maxlong = limits.USER_FIELD_SHOWN_CHARS_MAX
