"""Makes the JSON for llm_chat_render from the messages of a conversation. All functions are pure."""

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
    """What the request requires of the answer: a constraint, and a limit on the reasoning. A field is None if the
    request does not require it.
    """

    constraint: Constraint | None = None
    thinking_tokens_max: int | None = None
    follows_thinking: bool = False
    """Whether the engine must find the end of the reasoning, because stop strings count only after it."""


ANY_FORM = Form()


def render_request(
    chat: ChatPrompt, messages: Sequence[PlainMessage], past: Past | None = None, form: Form = ANY_FORM
) -> bytes:
    """Returns the JSON for `llm_chat_render`. `messages` are the messages of the conversation, or its plain turns
    (history.py). `past` is the beginning of the conversation, if its tokens are known. Only the messages after this
    beginning are then rendered.
    """
    choice, constraint = chat.tool_choice, form.constraint
    return msgspec.json.encode(
        _present(
            messages=[_rendered(message) for message in messages],
            after=past.rendered() if past is not None else None,
            add_generation_prompt=chat.has_opening,
            chat_template_kwargs=chat.variables or None,
            tools=[{"type": "function", "function": tool} for tool in chat.tools] or None,
            tool_choice={"mode": choice.mode, "names": choice.names} if chat.tools else None,
            parallel_tool_calls=chat.has_parallel_calls if chat.tools else None,
            reasoning_apart=None if chat.is_reasoning_apart else False,
            continues=chat.continues or None,
            constraint=_rendered_constraint(constraint) if constraint is not None else None,
            thinking_tokens_max=form.thinking_tokens_max,
            follows_thinking=form.follows_thinking or None,
        )
    )


def _present(**members: Any) -> dict[str, Any]:
    """Returns the members that are not None."""
    return {name: value for name, value in members.items() if value is not None}


def _rendered(message: PlainMessage) -> dict[str, Any]:
    """Returns a message with the members that templates read."""
    return _present(
        role=message.role,
        content=message.content,
        tool_calls=[_rendered_call(call) for call in message.tool_calls] or None,
        name=message.name,
        tool_call_id=message.tool_call_id,
        reasoning_content=message.reasoning,
    )


def _rendered_call(call: PlainToolCall) -> dict[str, Any]:
    return _present(type="function", function={"name": call.name, "arguments": call.arguments}, id=call.id)


def _rendered_constraint(constraint: Constraint) -> dict[str, Any]:
    return {"kind": constraint.kind, "text": constraint.text, "strict": constraint.is_strict}


def text_bytes_of(messages: Sequence[PlainMessage]) -> int:
    """Returns the number of bytes of all texts that a template can write into the prompt."""
    return sum(map(_bytes_of, messages))


def _bytes_of(message: PlainMessage) -> int:
    texts = (message.content, message.name or "", message.tool_call_id or "", message.reasoning or "")
    calls = sum(utf8_bytes(call.name) + utf8_bytes(call.arguments) for call in message.tool_calls)
    return sum(map(utf8_bytes, texts)) + calls
