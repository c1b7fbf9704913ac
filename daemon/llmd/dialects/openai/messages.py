"""Turns the messages of a chat request into the messages of a conversation. All functions are pure."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from ...core import limits
from ...core.errors import ApiError, check_count, invalid_type, required
from ...core.generation_request import PlainMessage, PlainToolCall, Role
from ..conversation import TEXTS, Piece, answerable, joined, newest_question, part_text, role_of
from ..custom_tools import custom_arguments
from .wire import request as wire

_ROLES: dict[str, Role] = {
    "system": "system", "developer": "system", "user": "user", "assistant": "assistant", "tool": "tool",
    "function": "tool",
}  # fmt: skip
_RESULTS = ("tool", "function")
_REASONING = ("reasoning_content", "reasoning", "reasoning_text", "thinking")
_THOUGHTS = ("thinking", "reasoning")
"""Types of content parts that are reasoning. Only messages of the assistant have such parts."""


def messages_of(messages: list[wire.Message]) -> list[PlainMessage]:
    """Returns the messages, except empty assistant messages, which clients send after an aborted stream.

    Raises an ApiError that names a message that cannot be rendered.
    """
    check_count("messages", len(messages), limits.MESSAGES_MAX, "messages")
    newest = newest_question(["tool" if message.role in _RESULTS else message.role for message in messages])
    found = [
        message_of(f"messages[{n}]", message, n == newest)
        for n, message in enumerate(messages)
        if not _is_empty(message)
    ]
    answerable("messages", found)
    return _with_legacy_ids(found) if any(map(_is_legacy, messages)) else found


def _is_empty(message: wire.Message) -> bool:
    if message.role != "assistant" or message.tool_calls or message.function_call is not None:
        return False
    content = message.content
    if isinstance(content, list):
        return all(part.type in TEXTS and not (part.text or "").strip() for part in content)
    return not (content or "").strip()


def message_of(path: str, message: wire.Message, is_newest: bool = True) -> PlainMessage:
    """Returns the message. In a user message, attachments are refused if `is_newest` is true. Otherwise a placeholder
    text replaces them.
    """
    role = role_of(path, message.role, _ROLES)
    if message.audio is not None:
        raise ApiError("unsupported_parameter", f"{path}.audio is not supported.", f"{path}.audio")
    content, marks = joined(_content(path, message, is_newest), "\n")
    return PlainMessage(
        role=role,
        content=content,
        tool_calls=_tool_calls(path, message),
        name=message.name,
        tool_call_id=message.tool_call_id,
        reasoning=_reasoning(message),
        marks=(*marks, len(content)) if message.cache_control is not None else marks,
    )


def _content(path: str, message: wire.Message, is_newest: bool) -> Sequence[Piece]:
    content = message.content
    if content is None:
        if message.role == "assistant" or message.role in _RESULTS:
            return ()
        raise invalid_type(f"{path}.content", "expected text, got null")
    if isinstance(content, str):
        return ((content, False),)
    is_answer, is_result = message.role == "assistant", message.role in _RESULTS
    is_past = message.role == "user" and not is_newest
    return [
        (
            part_text(f"{path}.content[{n}]", part, is_result=is_result, is_past=is_past),
            part.cache_control is not None,
        )
        for n, part in enumerate(content)
        if not (is_answer and part.type in _THOUGHTS)
    ]


def _reasoning(message: wire.Message) -> str | None:
    """Returns the reasoning of a message. The reasoning can be in members with different names. The first text that is
    not empty counts.
    """
    candidates = [getattr(message, name) for name in _REASONING]
    if message.role == "assistant" and isinstance(message.content, list):
        thoughts = [part.thinking or part.text or "" for part in message.content if part.type in _THOUGHTS]
        candidates += ["\n".join(thoughts)] if thoughts else []
    texts = [text for text in candidates if isinstance(text, str)]
    return next(filter(None, texts), texts[0] if texts else None)


def _tool_calls(path: str, message: wire.Message) -> tuple[PlainToolCall, ...]:
    if message.function_call is not None and not message.tool_calls:
        return (_called(message.function_call, None),)
    return tuple(_call(f"{path}.tool_calls[{n}]", call) for n, call in enumerate(message.tool_calls or ()))


def _call(path: str, call: wire.ToolCall) -> PlainToolCall:
    if call.custom is not None and call.type != "function":
        return PlainToolCall(call.custom.name, custom_arguments(call.custom.input), call.id)
    kind = "custom" if call.type == "custom" else "function"
    return _called(required(f"{path}.{kind}", call.function), call.id)


def _called(function: wire.FunctionCall, id: str | None) -> PlainToolCall:
    arguments = function.arguments
    if not isinstance(arguments, str):
        arguments = msgspec.json.encode(arguments or {}).decode()
    return PlainToolCall(function.name, arguments, id)


# --- calls of the old functions API ----------------------------------------------------------------------------------


def _is_legacy(message: wire.Message) -> bool:
    return message.role == "function" or message.function_call is not None


def _with_legacy_ids(messages: list[PlainMessage]) -> list[PlainMessage]:
    """Adds ids to tool calls of the old functions API, which has no ids. Many templates need an id to match a tool call
    with its result. The id is made from the index of the call's message. So the call gets the same id when the message
    is sent again in a longer conversation.
    """
    found, called = [], ""
    for n, message in enumerate(messages):
        if len(message.tool_calls) == 1 and message.tool_calls[0].id is None:
            called = f"call{n:05}"  # some templates accept only ids of nine letters and digits
            call = msgspec.structs.replace(message.tool_calls[0], id=called)
            message = msgspec.structs.replace(message, tool_calls=(call,))
        elif message.role == "tool" and message.tool_call_id is None and called:
            message = msgspec.structs.replace(message, tool_call_id=called)
        found.append(message)
    return found
