"""From Ollama's messages and tools to the conversation that is asked about. Pure."""

from __future__ import annotations

import msgspec

from ...core.asked import PlainMessage, PlainToolCall, Role, Tool
from ...core.errors import ApiError
from ...core.tools import check_count, distinct, tool_of
from ..conversation import answerable, check_length, newest_question, not_shown, role_of
from . import wire

_ROLES: dict[str, Role] = {"system": "system", "user": "user", "assistant": "assistant", "tool": "tool"}


def messages_of(messages: list[wire.OllamaMessage]) -> list[PlainMessage]:
    """Returns the messages without empty answers, as an aborted stream leaves. Raises ApiError naming the message."""
    check_length("messages", messages)
    newest = newest_question([message.role for message in messages])
    found = [
        _message(f"messages[{n}]", message, n == newest) for n, message in enumerate(messages) if not _is_empty(message)
    ]
    return answerable("messages", found)


def _is_empty(message: wire.OllamaMessage) -> bool:
    return message.role == "assistant" and not message.tool_calls and not (message.content or "").strip()


def _message(path: str, message: wire.OllamaMessage, is_newest: bool) -> PlainMessage:
    role = role_of(path, message.role, _ROLES)
    images = message.images or []
    if images and (is_newest or role not in ("user", "tool")):
        raise ApiError("unsupported_parameter", f"{path}.images: only text is supported.", f"{path}.images")
    return PlainMessage(
        role=role,
        content="\n".join([*filter(None, [message.content]), *(not_shown("image") for _ in images)]),
        tool_calls=tuple(map(_call, message.tool_calls or ())),
        name=message.tool_name,
        tool_call_id=message.tool_call_id,
        reasoning=message.thinking or None,
    )


def _call(call: wire.OllamaCall) -> PlainToolCall:
    return PlainToolCall(call.function.name, msgspec.json.encode(call.function.arguments or {}).decode(), call.id)


def tools_of(tools: list[wire.OfferedTool] | None) -> tuple[Tool, ...]:
    """Returns the tools of type function. Raises ApiError naming the tool and its member."""
    check_count("tools", len(tools or ()))
    functions = [(n, tool.function) for n, tool in enumerate(tools or ()) if tool.type in (None, "function")]
    return distinct(tool_of(f"tools[{n}].function", one.name, one.description, one.parameters) for n, one in functions)
