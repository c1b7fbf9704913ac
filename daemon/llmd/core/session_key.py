"""Finds the session id of a request, and the header or member of the body that has the id. All functions are pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import msgspec

from . import limits
from .errors import ApiError, quoted

_USER_SESSION = re.compile(r"user_.*_session_([0-9A-Za-z-]+)")
_VALID = re.compile(rf"[\x21-\x7e]{{1,{limits.SESSION_ID_CHARS_MAX}}}")

EXPLICIT_HEADER = "x-llm-session-id"
CLAUDE_HEADER = "x-claude-code-session-id"
AGENT_HEADER = "x-claude-code-agent-id"
PARENT_HEADER = "x-parent-session-id"
PARENT_AGENT_HEADER = "x-claude-code-parent-agent-id"
THREAD_HEADER = "thread-id"
SESSION_HEADER = "session-id"
PREVIOUS_RESPONSE = "previous_response_id"
_HINTS = ("prompt_cache_key", "metadata.session_id", "metadata.user_id", PREVIOUS_RESPONSE)
"""Members of the body that can contain a session id, but are also used for other purposes (SessionKey.is_hint)."""
_SPELLED = {EXPLICIT_HEADER: "X-LLM-Session-Id"}

# Headers that can contain a session id. The first tuple whose first header is present counts. The values of all headers
# in this tuple are joined. Names of headers are compared without case, and "_" counts as "-".
HEADERS: tuple[tuple[str, ...], ...] = (
    (EXPLICIT_HEADER,),
    ("x-executorch-session-id",),
    (THREAD_HEADER,),
    (CLAUDE_HEADER, AGENT_HEADER),
    (SESSION_HEADER,),
    ("x-session-affinity",),
    ("x-session-id",),
    ("x-conversation-id",),
    ("x-litellm-session-id",),
    ("x-openwebui-chat-id",),
    ("x-sgl-routing-key",),  # SGLang's router
    ("x-smg-routing-key",),
)


@dataclass(frozen=True, slots=True)
class SessionKey:
    """A session id and its source. An empty id means a request without a session (scratch)."""

    id: str
    source: str

    @property
    def is_scratch(self) -> bool:
        return not self.id

    @property
    def is_hint(self) -> bool:
        """Whether the id comes from a member that is also used for other purposes. The client possibly does not know
        that the member names a session. So the id never causes an error. If the id is invalid, or the queue of its
        session is full, the request is answered without a session.
        """
        return self.source in _HINTS


Session = tuple[SessionKey, str]
"""The key of a session, and the id of its parent or "". If the session does not exist yet, it begins as a fork of the
parent.
"""
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
    """Returns the session id of a request. Searches, in this order: `session_id` of the body, the headers of HEADERS,
    `prompt_cache_key`, `metadata`.

    `session_id` and the headers always mean a session id, so an invalid value is an error. `prompt_cache_key` and
    `metadata` are also used for other purposes. So a value that is not a valid session id is ignored. Ids of requests
    are never used as session ids.
    """
    if session_id is not None:
        return SessionKey(valid_id("session_id", session_id), "session_id")
    folded = _folded(headers)
    for names in HEADERS:
        value = folded.get(names[0])
        if value or (value is not None and names[0] == EXPLICIT_HEADER):
            joined = ":".join([value, *(folded[name] for name in names[1:] if folded.get(name))])
            return SessionKey(valid_id(_SPELLED.get(names[0], names[0]), joined), names[0])
    if prompt_cache_key and is_valid(prompt_cache_key):
        return SessionKey(prompt_cache_key, "prompt_cache_key")
    return _of_metadata(metadata or {})


def _of_metadata(metadata: Mapping[str, object]) -> SessionKey:
    user = metadata.get("user_id")
    for value, source in ((metadata.get("session_id"), "metadata.session_id"), (_of_user(user), "metadata.user_id")):
        if isinstance(value, str) and is_valid(value):
            return SessionKey(value, source)
    return SCRATCH


def _of_user(user: object) -> object:
    """Returns the session id in Claude Code's user_id, or None. The user_id is a text that contains a JSON object with
    the member session_id. In older versions, it is a text that ends with the session id.
    """
    if not isinstance(user, str) or len(user) > limits.USER_ID_CHARS_MAX:
        return None
    if user.startswith("{"):
        try:
            return msgspec.json.decode(user, type=_UserNaming).session_id
        except (msgspec.DecodeError, RecursionError):
            return None
    named = _USER_SESSION.fullmatch(user)
    return named[1] if named else None


class _UserNaming(msgspec.Struct):
    session_id: str | None = None


def _folded(headers: Iterable[tuple[str, str]]) -> dict[str, str]:
    return {fold(name): value.strip() for name, value in headers}


def parent_of(headers: Iterable[tuple[str, str]], key: SessionKey) -> str:
    """Returns the session id of the parent agent if the request comes from a subagent, otherwise "". A subagent's
    session begins as a fork of its parent's session.
    """
    folded = _folded(headers)
    parent, source = folded.get(PARENT_HEADER, ""), PARENT_HEADER
    agent = folded.get(PARENT_AGENT_HEADER)
    if not parent and agent and key.source == CLAUDE_HEADER:
        parent, source = f"{folded[CLAUDE_HEADER]}:{agent}", PARENT_AGENT_HEADER
    elif not parent and key.source == THREAD_HEADER:
        parent, source = folded.get(SESSION_HEADER, ""), SESSION_HEADER
    if not parent or key.is_scratch:
        return ""
    return valid_id(source, parent) if parent != key.id else ""


def valid_id(param: str, value: str) -> str:
    """Returns the session id. Raises an ApiError that names the client's parameter."""
    if is_valid(value):
        return value
    raise invalid_id(param, value)


def invalid_id(param: str, value: str) -> ApiError:
    return ApiError(
        "invalid_session_id",
        f"{param}: {quoted(value)} is not a valid session id: use 1 to {limits.SESSION_ID_CHARS_MAX} printable ASCII "
        "characters without spaces.",
        param,
    )
