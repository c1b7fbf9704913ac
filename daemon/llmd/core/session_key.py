"""Which session a request belongs to: a pure function from headers and body to an id and where it came from."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from . import limits
from .errors import ApiError, shown

_VALID = re.compile(rf"[\x21-\x7e]{{1,{limits.SESSION_ID_CHARS_MAX}}}")

EXPLICIT_HEADER = "x-llm-session-id"
CLAUDE_HEADER = "x-claude-code-session-id"
AGENT_HEADER = "x-claude-code-agent-id"
PARENT_HEADER = "x-parent-session-id"
PARENT_AGENT_HEADER = "x-claude-code-parent-agent-id"

# First match wins. Names are compared with "_" folded to "-" and case folded. A tuple's parts are joined.
HEADERS: tuple[tuple[str, ...], ...] = (
    (EXPLICIT_HEADER,),
    ("x-executorch-session-id",),
    ("thread-id",),
    (CLAUDE_HEADER, AGENT_HEADER),
    ("x-session-affinity",),
    ("x-session-id",),
    ("session-id",),
    ("x-conversation-id",),
    ("x-litellm-session-id",),
    ("x-openwebui-chat-id",),
)


@dataclass(frozen=True, slots=True)
class SessionKey:
    """A session id and its source; an empty id means scratch."""

    id: str
    source: str

    @property
    def is_scratch(self) -> bool:
        return not self.id


SCRATCH = SessionKey("", "scratch")


def is_valid(value: str) -> bool:
    return _VALID.fullmatch(value) is not None


def fold(name: str) -> str:
    return name.lower().replace("_", "-")


def resolve(
    headers: Iterable[tuple[str, str]],
    session_id: str | None = None,
    prompt_cache_key: str | None = None,
    metadata: Mapping[str, object] | None = None,
) -> SessionKey:
    """Body `session_id`, then headers in order, then `prompt_cache_key`, then `metadata.session_id`, then scratch.

    An id that was set for this daemon (`session_id`, X-LLM-Session-Id) must be valid. The other sources mean something
    else to whoever sent them: what is no valid id there is passed over, never an error.
    """
    if session_id is not None:
        return SessionKey(_required(session_id, "session_id"), "session_id")
    folded = {fold(name): value.strip() for name, value in headers}
    for names in HEADERS:
        value = folded.get(names[0])
        if value is None:
            continue
        if names[0] == EXPLICIT_HEADER:
            return SessionKey(_required(value, "X-LLM-Session-Id"), EXPLICIT_HEADER)
        joined = ":".join([value, *(folded[name] for name in names[1:] if folded.get(name))])
        if value and is_valid(joined):
            return SessionKey(joined, names[0])
    if prompt_cache_key and is_valid(prompt_cache_key):
        return SessionKey(prompt_cache_key, "prompt_cache_key")
    nested = metadata.get("session_id") if metadata else None
    if isinstance(nested, str) and is_valid(nested):
        return SessionKey(nested, "metadata.session_id")
    return SCRATCH


def parent_of(headers: Iterable[tuple[str, str]], key: SessionKey) -> str:
    """The session that this one begins as a copy of, if it is a subagent's; "" for none."""
    folded = {fold(name): value.strip() for name, value in headers}
    parent = folded.get(PARENT_HEADER, "")
    agent = folded.get(PARENT_AGENT_HEADER)
    if not parent and agent and key.source == CLAUDE_HEADER:
        parent = f"{folded[CLAUDE_HEADER]}:{agent}"
    return parent if is_valid(parent) and not key.is_scratch and parent != key.id else ""


def _required(value: str, param: str) -> str:
    if is_valid(value):
        return value
    raise invalid(value, param)


def invalid(value: str, param: str) -> ApiError:
    return ApiError(
        "invalid_session_id",
        f"{param}: {shown(value)} is no session id; it needs 1 to {limits.SESSION_ID_CHARS_MAX} printable ASCII "
        "characters without spaces.",
        param,
    )
