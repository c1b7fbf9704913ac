"""Turns requests of Ollama's API into generation requests, with Ollama's names and defaults. All functions are pure."""

from __future__ import annotations

from typing import Any

import msgspec

from ...core import limits
from ...core.errors import check_count, invalid_value, unsupported
from ...core.generation_request import (
    ChatPrompt,
    Constraint,
    GenerationRequest,
    PlainMessage,
    PlainToolCall,
    RawPrompt,
    Role,
    Tool,
)
from ...core.sampling import stops_of
from ...core.tools import distinct, tool_of
from ..conversation import answerable, newest_question, placeholder, role_of
from ..probabilities import logprobs_of
from ..reading import Headers, generation, schema_constraint, session_of, thinking_variables
from ..sampling import sampling_of
from . import wire
from .wire import OllamaChatRequest, OllamaGenerateRequest, OllamaMessage, Options

_ROLES: dict[str, Role] = {"system": "system", "user": "user", "assistant": "assistant", "tool": "tool"}


def messages_of(messages: list[wire.OllamaMessage]) -> list[PlainMessage]:
    """Returns the messages, except empty assistant messages, which clients send after an aborted stream. Raises an
    ApiError that names the invalid message.
    """
    check_count("messages", len(messages), limits.MESSAGES_MAX, "messages")
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
        raise unsupported(f"{path}.images", "images are not supported; the model reads text only")
    return PlainMessage(
        role=role,
        content="\n".join([*filter(None, [message.content]), *(placeholder("image") for _ in images)]),
        tool_calls=tuple(map(_call, message.tool_calls or ())),
        name=message.tool_name,
        tool_call_id=message.tool_call_id,
        reasoning=message.thinking or None,
    )


def _call(call: wire.OllamaCall) -> PlainToolCall:
    return PlainToolCall(call.function.name, msgspec.json.encode(call.function.arguments or {}).decode(), call.id)


def tools_of(tools: list[wire.OfferedTool] | None) -> tuple[Tool, ...]:
    """Returns the tools of type function. Raises an ApiError that names the invalid member of a tool."""
    check_count("tools", len(tools or ()), limits.TOOLS_MAX, "tools")
    functions = [(n, tool.function) for n, tool in enumerate(tools or ()) if tool.type in (None, "function")]
    return distinct(tool_of(f"tools[{n}].function", one.name, one.description, one.parameters) for n, one in functions)


# --- requests --------------------------------------------------------------------------------------------------------


_Request = OllamaChatRequest | OllamaGenerateRequest


def chat_of(body: OllamaChatRequest, headers: Headers) -> GenerationRequest | None:
    """Returns the request, or None if nothing is to be generated. Raises an ApiError that names the invalid field."""
    if not body.messages:
        return None
    prompt = ChatPrompt(
        messages=messages_of(body.messages),
        variables=_variables(body),
        tools=tools_of(body.tools),
        continues=_is_text(body.messages[-1]),
        may_truncate=body.truncate is not False,
    )
    return _generation_request(body, prompt, headers)


def _is_text(message: OllamaMessage) -> bool:
    """Returns whether the message is a text of the assistant without tool calls. If the last message of a request is
    such a message, the answer continues it.
    """
    return message.role == "assistant" and not message.tool_calls and bool((message.content or "").strip())


def generate_of(body: OllamaGenerateRequest, headers: Headers) -> GenerationRequest | None:
    """Returns the request, or None if nothing is to be generated. Raises an ApiError that names the invalid field."""
    if not body.prompt and not body.suffix:
        return None
    return _generation_request(body, _prompt(body), headers)


def _prompt(body: OllamaGenerateRequest) -> ChatPrompt | RawPrompt:
    prompt = body.prompt or ""
    if body.raw or body.suffix:  # the client writes the whole prompt, without a template
        for name in ("system", "think"):
            if getattr(body, name):
                raise invalid_value(name, "not supported together with raw or suffix, which use no template")
        return RawPrompt(prompt, parse_special=bool(body.raw), suffix=body.suffix or "")
    system = [PlainMessage("system", body.system)] if body.system else []
    messages = [*system, PlainMessage("user", prompt)]
    return ChatPrompt(messages=messages, variables=_variables(body), param="prompt")


def _generation_request(body: _Request, prompt: ChatPrompt | RawPrompt, headers: Headers) -> GenerationRequest:
    options = body.options or Options()
    is_stream = body.stream is not False
    return generation(
        body,
        session_of(headers),
        prompt,
        is_stream=is_stream,
        max_tokens=max(options.num_predict or 0, 0),
        sampling=sampling_of(options, "options."),
        stop=stops_of(options.stop, "options.stop"),
        constraint=_constraint(body),
        n_logprobs=logprobs_of(body.logprobs, body.top_logprobs),
        returns_progress=is_stream and bool(body.return_progress),
    )


def _constraint(body: _Request) -> Constraint | None:
    if not body.format:
        return None
    return (
        Constraint("json", "", "format")
        if body.format == "json"
        else schema_constraint("format", body.format, is_strict=False)
    )


def _variables(body: _Request) -> dict[str, Any]:
    think = body.think
    effort = "high" if think == "max" else think  # templates support no higher effort
    return thinking_variables(
        effort if isinstance(effort, str) else None, None if think is None else think is not False
    )
