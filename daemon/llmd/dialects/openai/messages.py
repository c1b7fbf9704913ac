"""From the messages of a chat to the conversation that is asked about. Pure."""

from __future__ import annotations

from typing import Any

import msgspec

from ...core import limits
from ...core.asked import PlainMessage, PlainToolCall, Role
from ...core.errors import ApiError, shown
from . import wire

_ROLES: dict[str, Role] = {
    "system": "system", "developer": "system", "user": "user", "assistant": "assistant", "tool": "tool",
}  # fmt: skip
_SWITCHES = {"enabled": True, "disabled": False}


def messages_of(messages: list[wire.Message]) -> list[PlainMessage]:
    """Without the empty answers that an aborted stream left behind.

    Raises ApiError naming the message that cannot be rendered.
    """
    if len(messages) > limits.MESSAGES_MAX:
        raise ApiError(
            "invalid_value", f"messages: {len(messages)} messages; at most {limits.MESSAGES_MAX} are taken.", "messages"
        )
    found = [message_of(f"messages[{n}]", message) for n, message in enumerate(messages) if not _is_empty(message)]
    if not found:
        raise ApiError("invalid_value", "messages: there is no message to answer.", "messages")
    return found


def _is_empty(message: wire.Message) -> bool:
    if message.role != "assistant" or message.tool_calls:
        return False
    content = message.content
    if isinstance(content, list):
        return all(part.type == "text" and not (part.text or "").strip() for part in content)
    return not (content or "").strip()


def message_of(path: str, message: wire.Message) -> PlainMessage:
    role = _ROLES.get(message.role)
    if role is None:
        raise ApiError(
            "invalid_value",
            f"{path}.role: {shown(message.role)} is not one of {', '.join(_ROLES)}.",
            f"{path}.role",
        )
    for field in ("function_call", "audio"):
        if getattr(message, field) is not None:
            raise ApiError("unsupported_parameter", f"{path}.{field} is not supported.", f"{path}.{field}")
    return PlainMessage(
        role=role,
        content=_content(path, message),
        tool_calls=tuple(map(_tool_call, message.tool_calls or ())),
        name=message.name,
        tool_call_id=message.tool_call_id,
        reasoning=message.reasoning_content,
    )


def _content(path: str, message: wire.Message) -> str:
    content = message.content
    if content is None:
        if message.role in ("assistant", "tool"):
            return ""
        raise ApiError("invalid_type", f"{path}.content: expected text, got null.", f"{path}.content")
    if isinstance(content, str):
        return content
    return "\n".join(_part(f"{path}.content[{n}]", part) for n, part in enumerate(content))


def _part(path: str, part: wire.ContentPart) -> str:
    if part.type != "text":
        raise ApiError(
            "unsupported_parameter", f"{path}: parts of type {shown(part.type)} are not supported; only text is.", path
        )
    if part.text is None:
        raise ApiError("missing_parameter", f"{path}.text is missing.", f"{path}.text")
    return part.text


def _tool_call(call: wire.ToolCall) -> PlainToolCall:
    arguments = call.function.arguments
    if not isinstance(arguments, str):
        arguments = msgspec.json.encode(arguments).decode()
    return PlainToolCall(call.function.name, arguments, call.id)


def variables_of(wanted: wire.ChatCompletionRequest) -> dict[str, Any]:
    """What the template is told."""
    return {**_thinking(wanted), **(wanted.chat_template_kwargs or {})}


def _thinking(wanted: wire.ChatCompletionRequest) -> dict[str, Any]:
    """The template variables that the fields about thinking ask for; of several that disagree the plainest wins."""
    thinking, reasoning = wanted.thinking or wire.Thinking(), wanted.reasoning or wire.Reasoning()
    effort = wanted.reasoning_effort if wanted.reasoning_effort is not None else reasoning.effort
    wishes = (
        wanted.enable_thinking,
        _SWITCHES.get(thinking.type or ""),
        reasoning.enabled,
        False if effort == "none" else None,
    )
    variables: dict[str, Any] = {} if effort is None else {"reasoning_effort": effort}
    wish = next((wish for wish in wishes if wish is not None), None)
    return variables if wish is None else {**variables, "enable_thinking": wish}
