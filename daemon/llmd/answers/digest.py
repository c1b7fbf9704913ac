"""The digest of a conversation, under which past answers are found.

The digest ignores changes that clients make unintentionally. Null, "" and blank text are equal. Arguments of tool calls
are compared as values. Reasoning and the ids of tool calls are left out.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import Any

import msgspec

from ..core import limits
from ..core.errors import ApiError
from ..core.generation_request import PlainMessage, PlainToolCall, Tool
from ..engine.json_scan import ARGUMENTS, decoder_of

DIGEST_BYTES = 16
_THINK, _THOUGHT = "<think>", "</think>"
_encode = msgspec.json.Encoder(order="deterministic").encode


def digest_of(previous: bytes, message: PlainMessage) -> bytes:
    """Returns the digest of a conversation up to this message. `previous` is the digest up to the message before this
    one. For the first message, `previous` is the digest of the tools, or b"" if there are no tools.
    """
    return hashlib.blake2b(previous + _encode(_meaning(message)), digest_size=DIGEST_BYTES).digest()


def digests_of(messages: Sequence[PlainMessage], tools: Sequence[Tool] = ()) -> list[bytes]:
    """Returns, for each message, the digest of the conversation up to this message. All digests also cover the tools,
    except deferred tools: their definitions are in messages.
    """
    listed = [tool for tool in tools if not tool.is_deferred]
    return list(accumulate(messages, digest_of, initial=_digest(listed) if listed else b""))[1:]


def variables_digest(variables: Mapping[str, Any]) -> bytes:
    return _digest(variables) if variables else b""


def _digest(value: Any) -> bytes:
    return hashlib.blake2b(_encode(value), digest_size=DIGEST_BYTES).digest()


def _meaning(message: PlainMessage) -> list[Any]:
    text = _without_reasoning(message.content) if message.role == "assistant" else message.content
    calls = [[call.name, _arguments(call)] for call in message.tool_calls]
    return [message.role, message.name, text if text.strip() else "", calls]


def _without_reasoning(text: str) -> str:
    if text.lstrip().startswith(_THINK):
        _, ended, answer = text.partition(_THOUGHT)
        return answer.lstrip() if ended else text
    return text


def _arguments(call: PlainToolCall) -> Any:
    """Returns the decoded arguments of the call. If the arguments are not JSON, or exceed a limit, returns them as
    text.
    """
    arguments = call.arguments
    try:
        return _plain(decoder_of(Any).decode(ARGUMENTS.clean(arguments.encode())) if arguments.strip() else {})
    except (ApiError, msgspec.DecodeError, RecursionError):
        return arguments


def _plain(value: Any, levels: int = limits.ARGUMENTS_DEPTH_MAX) -> Any:
    """Replaces floats such as 1.0 by integers, because clients in JavaScript send 1.0 back as 1. Raises RecursionError
    if the value is nested more than `levels` deep. This limit does not depend on how much of Python's stack is in use.
    """
    if levels < 0:
        raise RecursionError
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, dict):
        return {name: _plain(item, levels - 1) for name, item in value.items()}
    if isinstance(value, list):
        return [_plain(item, levels - 1) for item in value]
    return value
