"""Makes the request to the chat template from the messages of a conversation. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from ..answers.memory import Past
from ..core.context_limits import utf8_bytes
from ..core.generation_request import ChatPrompt, Constraint, PlainMessage, PlainToolCall


@dataclass(frozen=True, slots=True)
class Form:
    """The form that the answer must have; None: any."""

    constraint: Constraint | None = None
    thinking_tokens_max: int | None = None
    follows_thinking: bool = False
    """The engine must tell reasoning from the answer."""


ANY_FORM = Form()


def render_request(
    chat: ChatPrompt, messages: Sequence[PlainMessage], past: Past | None = None, form: Form = ANY_FORM
) -> bytes:
    """Returns the JSON that `llm_chat_render` takes. `messages`: the conversation's, or joined ones; `past`: the past
    that the prompt continues."""
    document: dict[str, Any] = {"messages": [_rendered(message) for message in messages]}
    if past is not None:
        document["after"] = past.rendered()
    if chat.has_opening is not None:
        document["add_generation_prompt"] = chat.has_opening
    if chat.variables:
        document["chat_template_kwargs"] = chat.variables
    return msgspec.json.encode({**document, **_tools(chat), **_answer(chat, form)})


def _tools(chat: ChatPrompt) -> dict[str, Any]:
    if not chat.tools:
        return {}
    choice = chat.tool_choice
    found: dict[str, Any] = {
        "tools": [{"type": "function", "function": tool} for tool in chat.tools],
        "tool_choice": {"mode": choice.mode, "names": choice.names},
    }
    if chat.has_parallel_calls is not None:
        found["parallel_tool_calls"] = chat.has_parallel_calls
    return found


def _answer(chat: ChatPrompt, form: Form) -> dict[str, Any]:
    found: dict[str, Any] = {}
    if not chat.is_reasoning_apart:
        found["reasoning_apart"] = False
    if chat.continues:
        found["continues"] = True
    if form.constraint is not None:
        kind, text, is_strict = form.constraint.kind, form.constraint.text, form.constraint.is_strict
        found["constraint"] = {"kind": kind, "text": text, "strict": is_strict}
    if form.thinking_tokens_max is not None:
        found["thinking_tokens_max"] = form.thinking_tokens_max
    if form.follows_thinking:
        found["follows_thinking"] = True
    return found


def _rendered(message: PlainMessage) -> dict[str, Any]:
    """Returns a message in the form that templates expect."""
    out: dict[str, Any] = {"role": message.role, "content": message.content}
    if message.tool_calls:
        out["tool_calls"] = [_rendered_call(call) for call in message.tool_calls]
    for name, value in (
        ("name", message.name),
        ("tool_call_id", message.tool_call_id),
        ("reasoning_content", message.reasoning),
    ):
        if value is not None:
            out[name] = value
    return out


def _rendered_call(call: PlainToolCall) -> dict[str, Any]:
    out: dict[str, Any] = {"type": "function", "function": {"name": call.name, "arguments": call.arguments}}
    if call.id is not None:
        out["id"] = call.id
    return out


def text_bytes_of(messages: Sequence[PlainMessage]) -> int:
    """Returns the bytes of all texts that a template may write."""
    return sum(map(_bytes_of, messages))


def _bytes_of(message: PlainMessage) -> int:
    texts = (message.content, message.name or "", message.tool_call_id or "", message.reasoning or "")
    calls = sum(utf8_bytes(call.name) + utf8_bytes(call.arguments) for call in message.tool_calls)
    return sum(map(utf8_bytes, texts)) + calls
