"""From the messages of a request to what the chat template reads. Pure."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import msgspec

from ..answers.memory import Splice
from ..core import limits
from ..core.errors import ApiError, shown
from ..core.room import utf8_bytes
from ..dialects.openai.wire import ChatCompletionRequest, ContentPart, Message, Reasoning, Thinking, ToolCall

_ROLES = {"system": "system", "developer": "system", "user": "user", "assistant": "assistant", "tool": "tool"}
_SWITCHES = {"enabled": True, "disabled": False}


def render_request(
    request: ChatCompletionRequest, messages: list[dict[str, Any]], splices: Sequence[Splice] = ()
) -> bytes:
    """The JSON that `llm_chat_render` takes. `messages`: those of the request, in the template's form."""
    document: dict[str, Any] = {"messages": messages}
    if splices:
        document["splices"] = [splice.rendered() for splice in splices]
    if request.add_generation_prompt is not None:
        document["add_generation_prompt"] = request.add_generation_prompt
    variables = {**_thinking(request), **(request.chat_template_kwargs or {})}
    if variables:
        document["chat_template_kwargs"] = variables
    return msgspec.json.encode(document)


def _thinking(request: ChatCompletionRequest) -> dict[str, Any]:
    """The template variables that the fields about thinking ask for; of several that disagree the plainest wins."""
    thinking, reasoning = request.thinking or Thinking(), request.reasoning or Reasoning()
    effort = request.reasoning_effort if request.reasoning_effort is not None else reasoning.effort
    wishes = (
        request.enable_thinking,
        _SWITCHES.get(thinking.type or ""),
        reasoning.enabled,
        False if effort == "none" else None,
    )
    variables: dict[str, Any] = {} if effort is None else {"reasoning_effort": effort}
    wish = next((wish for wish in wishes if wish is not None), None)
    return variables if wish is None else {**variables, "enable_thinking": wish}


def template_messages(messages: list[Message]) -> list[dict[str, Any]]:
    """The messages in the template's form, without the empty answers that an aborted stream left behind.

    Raises ApiError naming the message that cannot be rendered.
    """
    if len(messages) > limits.MESSAGES_MAX:
        raise ApiError(
            "invalid_value", f"messages: {len(messages)} messages; at most {limits.MESSAGES_MAX} are taken.", "messages"
        )
    rendered = [_message(index, message) for index, message in enumerate(messages) if not _is_empty_answer(message)]
    if not rendered:
        raise ApiError("invalid_value", "messages: there is no message to answer.", "messages")
    return rendered


def joined_users(
    messages: Sequence[dict[str, Any]], splices: Sequence[Splice]
) -> tuple[list[dict[str, Any]], list[Splice]]:
    """The same conversation with one message where the user has several in a row, as after an aborted answer."""
    runs: list[list[dict[str, Any]]] = []
    places = []
    for message in messages:
        before = runs[-1][-1] if runs else {}
        if message["role"] == before.get("role") == "user" and message.get("name") == before.get("name"):
            runs[-1].append(message)
        else:
            runs.append([message])
        places.append(len(runs) - 1)
    joined = [{**run[0], "content": "\n\n".join(message["content"] for message in run)} for run in runs]
    return joined, [dataclasses.replace(splice, message=places[splice.message]) for splice in splices]


def text_bytes_of(messages: Sequence[dict[str, Any]]) -> int:
    """Of all that a template may write."""
    return sum(_bytes_of(value) for message in messages for name, value in message.items() if name != "role")


def _bytes_of(value: Any) -> int:
    if isinstance(value, str):
        return utf8_bytes(value)
    calls = [call["function"] for call in value]  # of tools
    return sum(_bytes_of(call["name"]) + _bytes_of(call["arguments"]) for call in calls)


def _is_empty_answer(message: Message) -> bool:
    if message.role != "assistant" or message.tool_calls:
        return False
    content = message.content
    if isinstance(content, list):
        return all(part.type == "text" and not (part.text or "").strip() for part in content)
    return not (content or "").strip()


def _message(index: int, message: Message) -> dict[str, Any]:
    path = f"messages[{index}]"
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
    out: dict[str, Any] = {"role": role, "content": _content(path, message)}
    if message.tool_calls:
        out["tool_calls"] = [_tool_call(call) for call in message.tool_calls]
    for field in ("name", "tool_call_id", "reasoning_content"):
        value = getattr(message, field)
        if value is not None:
            out[field] = value
    return out


def _content(path: str, message: Message) -> str:
    content = message.content
    if content is None:
        if message.role in ("assistant", "tool"):
            return ""
        raise ApiError("invalid_type", f"{path}.content: expected text, got null.", f"{path}.content")
    if isinstance(content, str):
        return content
    return "\n".join(_part(f"{path}.content[{n}]", part) for n, part in enumerate(content))


def _part(path: str, part: ContentPart) -> str:
    if part.type != "text":
        raise ApiError(
            "unsupported_parameter", f"{path}: parts of type {shown(part.type)} are not supported; only text is.", path
        )
    if part.text is None:
        raise ApiError("missing_parameter", f"{path}.text is missing.", f"{path}.text")
    return part.text


def _tool_call(call: ToolCall) -> dict[str, Any]:
    arguments = call.function.arguments
    if not isinstance(arguments, str):
        arguments = msgspec.json.encode(arguments).decode()
    out: dict[str, Any] = {"type": "function", "function": {"name": call.function.name, "arguments": arguments}}
    if call.id is not None:
        out["id"] = call.id
    return out
