"""The number of one request: in the head of its answer, and in its log line."""

from __future__ import annotations

import re
import secrets

HEADER = "X-Request-Id"
"""Asked with and answered with; what OpenAI's packages show as `_request_id`."""
ANTHROPIC_HEADER = "Request-Id"
ANTHROPIC_VERSION = "Anthropic-Version"
"""What requests of its clients have."""
_GIVEN = re.compile(r"[A-Za-z0-9._:/+-]{1,128}")
"""Nothing that would need quoting in a log line."""


def request_id(given: str | None) -> str:
    """The client's own number where it sent one that can be told, else a new one."""
    if given is not None and _GIVEN.fullmatch(given):
        return given
    return f"req_{secrets.token_hex(12)}"
