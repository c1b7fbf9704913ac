"""Turns the items of a request's input into the messages of a conversation. All functions are pure.

Successive items of the assistant (reasoning, text, tool calls) become one message. Items of unknown types are ignored,
because clients also send items that they have received from other servers.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import msgspec

from ...core import limits
from ...core.errors import ApiError, check_count, invalid_type, quoted, required
from ...core.generation_request import PlainMessage, PlainToolCall, Role
from ...http.decode import decoded
from ..conversation import newest_question, part_text, placeholder, role_of
from ..custom_tools import custom_arguments
from ..members import InputContent
from . import wire
from .tools import called_as

T = TypeVar("T")
FindItem = Callable[[str], bytes | None]
"""Function that returns the stored item with a given id, or None if no stored response has the item."""

_ROLES: dict[str, Role] = {"system": "system", "developer": "system", "user": "user", "assistant": "assistant"}
_PICTURES = ("computer_screenshot", "input_image")
_ENCLOSED = "llmd:"
"""Beginning of every encrypted_content that llmd makes (`enclosed`)."""


@dataclass(frozen=True, slots=True)
class InputItem:
    path: str
    kind: str
    raw: msgspec.Raw
    is_stored: bool = False
    """Whether the request contains only the id of the item. The item is then part of a stored response."""
    role: str | None = None
    """The role, if the item is a message."""
    id: str | None = None
    """The id that the client sent."""

    def read(self, kind: type[T]) -> T:
        """Returns the decoded item. Raises an ApiError that names the invalid member."""
        return decoded(bytes(self.raw), kind, self.path)


def items_of(client_input: str | Sequence[msgspec.Raw] | None, find: FindItem) -> list[InputItem]:
    """Returns the items of the input. A reference to a stored item is replaced by this item. Raises an ApiError that
    names the invalid item.
    """
    if client_input is None:
        return []
    if isinstance(client_input, str):
        raw = msgspec.Raw(msgspec.json.encode({"role": "user", "content": client_input}))
        return [InputItem("input", "message", raw, role="user")]
    check_count("input", len(client_input), limits.MESSAGES_MAX, "items")
    found, n_bytes, most = list[InputItem](), 0, limits.RESPONSE_REFERRED_BYTES_MAX
    for n, raw in enumerate(client_input):
        path = f"input[{n}]"
        item = _item(path, raw, find)
        n_bytes += len(item.raw) if item.is_stored else 0
        if n_bytes > most:
            message = f"{path}.id: the stored items that the request refers to have more than {most} bytes in total."
            raise ApiError("request_too_large", message, f"{path}.id")
        found.append(item)
    return found


def _item(path: str, raw: msgspec.Raw, find: FindItem) -> InputItem:
    kind = decoded(bytes(raw), wire.InputKind, path)
    refers = kind.type == "item_reference" or (kind.type is None and kind.role is None and kind.id is not None)
    if refers:
        id = required(f"{path}.id", kind.id)
        found = find(id)
        if found is None:
            message = f"Item with id {quoted(id)} not found: no stored response has it."
            raise ApiError("response_not_found", message, f"{path}.id")
        raw = msgspec.Raw(found)
        kind = decoded(bytes(raw), wire.InputKind, path)
    return InputItem(path, kind.type or "message", raw, refers, kind.role, kind.id)


def tools_among(items: Sequence[InputItem]) -> list[tuple[str, Sequence[msgspec.Raw]]]:
    """Returns the lists of tools in items of type additional_tools, each with the client's name of the list."""
    return [
        (f"{item.path}.tools", item.read(wire.InputTools).tools) for item in items if item.kind == "additional_tools"
    ]


# --- messages --------------------------------------------------------------------------------------------------------


def messages_of(items: Sequence[InputItem]) -> list[PlainMessage]:
    """Returns the messages, except empty assistant messages, which clients send after an aborted stream. Raises an
    ApiError that names the invalid item.
    """
    return [message for message in _turns(_pieces(items)) if not is_empty(message)]


def _turns(pieces: Iterator[PlainMessage]) -> Iterator[PlainMessage]:
    """Joins successive messages of the assistant into one message. Each of `pieces` is made from one item. If the
    joined message already has a text, the next text begins a new message.
    """
    turn: list[PlainMessage] = []
    for piece in pieces:
        if turn and (piece.role != "assistant" or (piece.content and turn[-1].content)):
            yield _joined(turn)
            turn = []
        if piece.role == "assistant":
            turn.append(piece)
        else:
            yield piece
    if turn:
        yield _joined(turn)


def _joined(pieces: Sequence[PlainMessage]) -> PlainMessage:
    return PlainMessage(
        "assistant",
        "".join(piece.content for piece in pieces),
        tuple(call for piece in pieces for call in piece.tool_calls),
        reasoning="".join(piece.reasoning or "" for piece in pieces) or None,
    )


def _pieces(items: Sequence[InputItem]) -> Iterator[PlainMessage]:
    newest = newest_question([_speaker(item) for item in items])
    for n, item in enumerate(items):
        if item.kind == "message":
            yield _message(item, n == newest)
        elif item.kind == "reasoning":
            yield PlainMessage("assistant", reasoning=_thought(item.read(wire.InputReasoning)))
        elif item.kind.endswith("_call_output"):
            yield _output(item)
        elif (call := _call(item)) is not None:
            yield PlainMessage("assistant", tool_calls=(call,))


def _speaker(item: InputItem) -> str:
    """Returns the role of the message that is made from the item. Returns "" if no message is made."""
    if item.kind == "message":
        return item.role or ""
    if item.kind.endswith("_call_output"):
        return "tool"
    return "assistant" if item.kind == "reasoning" or item.kind.endswith("_call") else ""


def is_empty(message: PlainMessage) -> bool:
    return message.role == "assistant" and not message.tool_calls and not message.content.strip()


def _message(item: InputItem, is_newest: bool) -> PlainMessage:
    message = item.read(wire.InputMessage)
    role = role_of(item.path, message.role, _ROLES)
    if message.content is None and role != "assistant":
        param = f"{item.path}.content"
        raise invalid_type(param, "expected text, got null")
    is_past = role == "user" and not is_newest
    return PlainMessage(role, _text(f"{item.path}.content", message.content or "", is_past=is_past))


def _text(path: str, content: str | Sequence[InputContent], *, is_result: bool = False, is_past: bool = False) -> str:
    """Returns the text of a message's content or of a tool's output. part_text explains `is_result` and `is_past`."""
    if isinstance(content, str):
        return content
    parts = (part_text(f"{path}[{n}]", part, is_result=is_result, is_past=is_past) for n, part in enumerate(content))
    return "\n".join(parts)


# --- calls -----------------------------------------------------------------------------------------------------------


def _call(item: InputItem) -> PlainToolCall | None:
    """Returns the tool call. Returns None if the item is no tool call. Also returns None if the provider has run the
    tool.
    """
    if item.kind == "function_call":
        call = item.read(wire.InputFunctionCall)
        return PlainToolCall(called_as(call.name, call.namespace), _json(call.arguments), call.call_id)
    if item.kind == "custom_tool_call":
        custom = item.read(wire.InputCustomCall)
        return PlainToolCall(called_as(custom.name, custom.namespace), custom_arguments(custom.input), custom.call_id)
    if not item.kind.endswith("_call"):
        return None
    other = item.read(wire.InputOtherCall)
    if other.call_id is None:
        return None
    arguments = next(filter(None, (other.arguments, other.action, other.operation)), None)
    return PlainToolCall(item.kind.removesuffix("_call"), _json(arguments), other.call_id)


def _json(arguments: Any) -> str:
    if arguments is None:
        return "{}"
    return arguments if isinstance(arguments, str) else msgspec.json.encode(arguments).decode()


def _output(item: InputItem) -> PlainMessage:
    found = item.read(wire.InputCallOutput)
    output = found.output
    if isinstance(output, dict):
        output = _wrapped(output)
    text = _text(f"{item.path}.output", output or "", is_result=True)
    return PlainMessage("tool", text, tool_call_id=found.call_id or found.id)


def _wrapped(output: dict[str, Any]) -> str:
    """Returns the text of a tool's output that is an object. The API expects a text or a list. But some clients put the
    text into a member `content`, and others send a screenshot without a list around it.
    """
    if output.get("type") in _PICTURES:
        return placeholder("image")
    content = output.get("content")
    return content if isinstance(content, str) else _json(output)


# --- reasoning -------------------------------------------------------------------------------------------------------


def enclosed(thought: str) -> str:
    """Encodes reasoning as encrypted_content, because some clients send reasoning back only in this member. The
    reasoning is not really encrypted: the client also gets it as plain text.
    """
    return _ENCLOSED + base64.b64encode(thought.encode()).decode()


def _thought(item: wire.InputReasoning) -> str | None:
    text = "".join(part.text for part in item.content or ())
    return (
        text
        or _decoded_reasoning(item.encrypted_content or "")
        or "\n\n".join(p.text for p in item.summary or ())
        or None
    )


def _decoded_reasoning(text: str) -> str:
    """Decodes an encrypted_content that `enclosed` has returned. Returns "" for an encrypted_content from another
    server.
    """
    if not text.startswith(_ENCLOSED):
        return ""
    try:
        return base64.b64decode(text.removeprefix(_ENCLOSED), validate=True).decode()
    except (binascii.Error, UnicodeDecodeError):
        return ""
