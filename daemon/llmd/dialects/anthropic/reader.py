"""Turns the body of a request of Anthropic's API into a generation request. All functions are pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from ...core import limits
from ...core.errors import check_count, invalid_value, quoted, required, unsupported
from ...core.generation_request import ChatPrompt, Constraint, GenerationRequest, Tool, ToolChoice
from ...core.sampling import stops_of
from ...core.session_key import Session
from ...core.tools import check_choice, distinct, tool_of
from .. import reading
from ..conversation import only_server_tools
from ..reading import SWITCHES, Headers, generation, schema_constraint, thinking_variables
from .deferred import REFERENCE, HistoryTools, tools_of_history
from .turns import messages_of
from .wire import ClientTool, CountTokensRequest, MessagesRequest

_MODES = {"auto": "auto", "any": "required", "tool": "required", "none": "none"}
_RUN_BY_CLIENTS = ("bash_", "text_editor_", "memory_", "computer_", "browser_")
"""Types of tools that clients run, without the date at the end of each type. Clients send these tools without a schema,
because Anthropic's models know the input of the tools. llmd refuses these tools, because the model that llmd serves
does not know their input.
"""
_EFFORTS = {"xhigh": "high", "max": "high"}
"""Maps Anthropic's efforts to the efforts that templates know."""


def request_of(body: MessagesRequest, headers: Headers) -> GenerationRequest:
    """Returns the generation request. Raises an ApiError that names the invalid field."""
    return generation(
        body,
        session_of(body, headers),
        conversation_of(body),
        max_tokens=_at_least(0, "max_tokens", body.max_tokens),
        prefill_only=body.max_tokens == 0,
        stop=stops_of(body.stop_sequences, "stop_sequences"),
        constraint=_constraint(body),
        thinking_tokens_max=_thinking_tokens(body),
        returns_progress=bool(body.stream),  # the first event of a stream reports the number of reused tokens
    )


def conversation_of(body: CountTokensRequest) -> ChatPrompt:
    history_tools = tools_of_history(_tools(body.tools or []), body.messages)
    messages = messages_of(body.system, body.messages, history_tools)
    choice = body.tool_choice
    return ChatPrompt(
        messages=messages,
        variables=_variables(body),
        tools=history_tools.callable,
        tool_choice=_choice(body, history_tools),
        has_parallel_calls=False if choice is not None and choice.disable_parallel_tool_use else None,
        continues=messages[-1].role == "assistant" and not messages[-1].tool_calls,
    )


def session_of(body: CountTokensRequest, headers: Headers) -> Session:
    return reading.session_of(headers, body.session_id, None, body.metadata)


def _at_least(least: int, param: str, value: int) -> int:
    if value < least:
        raise invalid_value(param, f"{quoted(value)} is less than {least}")
    return value


# --- tools -----------------------------------------------------------------------------------------------------------


def _tools(offered: list[ClientTool]) -> tuple[Tool, ...]:
    check_count("tools", len(offered), limits.TOOLS_MAX, "tools")
    found = [tool for n, offered_tool in enumerate(offered) for tool in _tool(f"tools[{n}]", offered_tool)]
    if offered and not found:
        raise only_server_tools("tools[0].type", str(offered[0].type))
    return distinct(found)


def _tool(param: str, offered_tool: ClientTool) -> Iterator[Tool]:
    """Yields the tool if it has a schema. A tool without a schema is left out if Anthropic's servers run it. It is
    refused if clients run it.
    """
    if offered_tool.input_schema is not None or offered_tool.type in (None, "custom"):
        tool = tool_of(param, offered_tool.name, offered_tool.description, offered_tool.input_schema)
        yield msgspec.structs.replace(tool, is_deferred=bool(offered_tool.defer_loading))
    elif offered_tool.type.startswith(_RUN_BY_CLIENTS):
        raise unsupported(
            f"{param}.type",
            f"the model does not know the input of {quoted(offered_tool.type)}; send the tool with an "
            "input_schema instead of this type",
        )


def _choice(body: CountTokensRequest, history_tools: HistoryTools) -> ToolChoice:
    tools = tuple(tool for tool in history_tools.callable if tool.name not in history_tools.removed)
    requested = _requested_choice(body)
    deferred = {tool.name for tool in body.tools or () if tool.defer_loading}
    for name in deferred.intersection(requested.names).difference(tool.name for tool in tools):
        raise invalid_value(
            "tool_choice",
            f"{quoted(name)} has defer_loading and cannot be called yet: no {REFERENCE} in messages names it",
        )
    found = check_choice("tool_choice", requested, tools)
    if not history_tools.removed or found.names:
        return found
    names = tuple(tool.name for tool in tools)
    return ToolChoice(found.mode if names else "none", names)


def _requested_choice(body: CountTokensRequest) -> ToolChoice:
    choice = body.tool_choice
    if choice is None:
        return ToolChoice()
    names = (required("tool_choice.name", choice.name),) if choice.type == "tool" else ()
    return ToolChoice(_MODES[choice.type], names)  # type: ignore[arg-type]


# --- thinking, structured output -------------------------------------------------------------------------------------


def _variables(body: CountTokensRequest) -> dict[str, Any]:
    effort = body.output_config.effort if body.output_config is not None else None
    switch = SWITCHES.get(body.thinking.type) if body.thinking is not None else None
    variables = thinking_variables(None, switch)
    return variables if effort is None else {**variables, "reasoning_effort": _EFFORTS.get(effort, effort)}


def _thinking_tokens(body: MessagesRequest) -> int | None:
    thinking = body.thinking
    if thinking is None or thinking.type == "disabled" or thinking.budget_tokens is None:
        return None
    return min(_at_least(1, "thinking.budget_tokens", thinking.budget_tokens), limits.THINKING_TOKENS_MAX)


def _constraint(body: MessagesRequest) -> Constraint | None:
    config_format = body.output_config.format if body.output_config is not None else None
    form, param = (
        (config_format, "output_config.format") if config_format is not None else (body.output_format, "output_format")
    )
    if form is None:
        return None
    return schema_constraint(f"{param}.schema", form.form)
