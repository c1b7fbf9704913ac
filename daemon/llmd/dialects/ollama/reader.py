"""From a typed request to what is asked (core/asked.py): what Ollama calls things, and its own defaults. Pure."""

from __future__ import annotations

from typing import Any

from ...core.asked import Asked, ChatPrompt, Constraint, PlainMessage, RawPrompt
from ...core.errors import ApiError
from ...core.sampling import stops_of
from ..probabilities import logprobs_of
from ..reading import Headers, generation, schema_constraint, session_of, thinking_variables
from ..sampling import sampling_of
from .messages import messages_of, tools_of
from .wire import OllamaChatRequest, OllamaGenerateRequest, OllamaMessage, Options

_Request = OllamaChatRequest | OllamaGenerateRequest


def chat_of(wanted: OllamaChatRequest, headers: Headers) -> Asked | None:
    """None: nothing is to be generated. Raises ApiError naming the field."""
    if not wanted.messages:
        return None
    prompt = ChatPrompt(
        messages=messages_of(wanted.messages),
        variables=_variables(wanted),
        tools=tools_of(wanted.tools),
        continues=_is_text(wanted.messages[-1]),
        may_be_cut=wanted.truncate is not False,
    )
    return _asked(wanted, prompt, headers)


def _is_text(message: OllamaMessage) -> bool:
    """Whether the answer continues this message: a text of the assistant, without calls."""
    return message.role == "assistant" and not message.tool_calls and bool((message.content or "").strip())


def generate_of(wanted: OllamaGenerateRequest, headers: Headers) -> Asked | None:
    """None: nothing is to be generated. Raises ApiError naming the field."""
    if not wanted.prompt and not wanted.suffix:
        return None
    return _asked(wanted, _prompt(wanted), headers)


def _prompt(wanted: OllamaGenerateRequest) -> ChatPrompt | RawPrompt:
    prompt = wanted.prompt or ""
    if wanted.raw or wanted.suffix:  # there is no template but the client, whose control words therefore are such
        for name in ("system", "think"):
            if getattr(wanted, name):
                raise ApiError("invalid_value", f"{name}: with raw, or a suffix, there is no template for it.", name)
        return RawPrompt(prompt, parse_special=bool(wanted.raw), suffix=wanted.suffix or "")
    system = [PlainMessage("system", wanted.system)] if wanted.system else []
    messages = [*system, PlainMessage("user", prompt)]
    return ChatPrompt(messages=messages, variables=_variables(wanted), param="prompt")


def _asked(wanted: _Request, prompt: ChatPrompt | RawPrompt, headers: Headers) -> Asked:
    options = wanted.options or Options()
    return generation(
        wanted,
        session_of(headers),
        prompt,
        is_stream=wanted.stream is not False,
        max_tokens=max(options.num_predict or 0, 0),
        sampling=sampling_of(options, "options."),
        stop=stops_of(options.stop, "options.stop"),
        constraint=_constraint(wanted),
        n_logprobs=logprobs_of(wanted.logprobs, wanted.top_logprobs),
    )


def _constraint(wanted: _Request) -> Constraint | None:
    if not wanted.format:
        return None
    return (
        Constraint("json", "", "format")
        if wanted.format == "json"
        else schema_constraint("format", wanted.format, is_strict=False)
    )


def _variables(wanted: _Request) -> dict[str, Any]:
    """Returns the template's variables about thinking."""
    think = wanted.think
    effort = "high" if think == "max" else think  # the highest that templates know
    return thinking_variables(
        effort if isinstance(effort, str) else None, None if think is None else think is not False
    )
