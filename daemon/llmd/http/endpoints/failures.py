"""Lists of error codes. Each list belongs to one activity of endpoints, such as rendering or generating. The endpoint
table says which lists apply to an endpoint. /openapi.json shows the codes of each endpoint. Tests check that an
endpoint returns no other codes.
"""

from __future__ import annotations

from ...core.errors import CODES

EVERYWHERE = (
    "invalid_http", "headers_too_large", "request_timeout", "too_many_connections", "unknown_user",
    "expectation_failed", "forbidden_host", "forbidden_origin", "not_found", "method_not_allowed", "internal_error",
)  # fmt: skip
KEYED = ("invalid_api_key", "model_loading")
"""Errors of endpoints that need the model and, if API keys are set, a key."""
WAITS = ("model_failed",)
"""Errors of endpoints whose requests wait while the model loads."""
BODY = (
    "invalid_json", "invalid_type", "invalid_value", "missing_parameter", "unsupported_parameter", "request_too_large",
    "unsupported_encoding", "overloaded", "no_memory", "deadline_exceeded", "shutting_down",
)  # fmt: skip
TEXT = ("invalid_token",)
RENDERS = (*TEXT, "invalid_session_id", "template_failed", "context_length_exceeded")
EMBEDS = (*TEXT, "no_embeddings", "context_length_exceeded", "step_failed")
ENGINE = (
    "capacity_exhausted", "queue_full", "overloaded", "kv_cache_full", "no_memory", "shutting_down", "step_failed",
    "torn", "io_error",
)  # fmt: skip
GENERATES = (*RENDERS, *ENGINE, "no_generation", "constraint_failed", "cancelled", "slow_reader")
LISTS = ("overloaded", "shutting_down")
"""Errors of endpoints that build a list of sessions or slots in a text thread."""
SESSION = ("session_not_found", "ambiguous_session", "invalid_session_id", "invalid_value")
COMMAND = (*SESSION, *ENGINE, "session_busy")
STORE = (*COMMAND, "no_state_dir")
RESPONSE = ("response_not_found",)


def by_status(codes: frozenset[str]) -> dict[int, list[str]]:
    """Groups codes by their HTTP status. The codes of a status are in the order of the error table (errors.CODES)."""
    found: dict[int, list[str]] = {}
    for code, kind in CODES.items():
        if code in codes:
            found.setdefault(kind.status, []).append(code)
    return dict(sorted(found.items()))
