"""Turns the body of a request into a generation request. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from ...core import limits
from ...core.errors import ApiError, shown
from ...core.generation_request import ChatPrompt, Constraint, GenerationRequest, Tool, ToolChoice
from ...core.sampling import stops_of
from ...core.session_key import Session
from ...core.tools import check_choice, check_count, distinct, tool_of
from .. import reading
from ..conversation import only_server_tools
from ..reading import SWITCHES, Headers, generation, schema_constraint, thinking_variables
from .deferred import ToldTools, told_tools
from .turns import messages_of
from .wire import ClientTool, CountTokensRequest, MessagesRequest

_MODES = {"auto": "auto", "any": "required", "tool": "required", "none": "none"}
_RUN_BY_CLIENTS = ("bash_", "text_editor_", "memory_", "computer_", "browser_")
"""Types of tools, before their dates, that the model would have to know without a schema, and whose calls clients wait
for."""
_EFFORTS = {"xhigh": "high", "max": "high"}
"""The efforts that templates know instead."""


def request_of(wanted: MessagesRequest, headers: Headers) -> GenerationRequest:
    """Raises ApiError naming the field."""
    return generation(
        wanted,
        session_of(wanted, headers),
        conversation_of(wanted),
        max_tokens=_at_least(0, "max_tokens", wanted.max_tokens),
        is_mute=wanted.max_tokens == 0,
        stop=stops_of(wanted.stop_sequences, "stop_sequences"),
        constraint=_constraint(wanted),
        thinking_tokens_max=_thinking_tokens(wanted),
        returns_progress=bool(wanted.stream),  # a stream begins with what was resident of the prompt
    )


def conversation_of(wanted: CountTokensRequest) -> ChatPrompt:
    told = told_tools(_tools(wanted.tools or []), wanted.messages)
    messages = messages_of(wanted.system, wanted.messages, told)
    choice = wanted.tool_choice
    return ChatPrompt(
        messages=messages,
        variables=_variables(wanted),
        tools=told.callable,
        tool_choice=_choice(wanted, told),
        has_parallel_calls=False if choice is not None and choice.disable_parallel_tool_use else None,
        continues=messages[-1].role == "assistant" and not messages[-1].tool_calls,
    )


def session_of(wanted: CountTokensRequest, headers: Headers) -> Session:
    return reading.session_of(headers, wanted.session_id, None, wanted.metadata)


def _at_least(least: int, param: str, value: int) -> int:
    if value < least:
        raise ApiError("invalid_value", f"{param}: {shown(value)} is less than {least}.", param)
    return value


# --- tools -----------------------------------------------------------------------------------------------------------


def _tools(offered: list[ClientTool]) -> tuple[Tool, ...]:
    check_count("tools", len(offered))
    found = [tool for n, given in enumerate(offered) for tool in _tool(f"tools[{n}]", given)]
    if offered and not found:
        raise only_server_tools("tools[0].type", str(offered[0].type))
    return distinct(found)


def _tool(param: str, given: ClientTool) -> Iterator[Tool]:
    """Yields a tool with a schema. Tools of other types, which Anthropic's servers run, are left out; those that
    clients run are refused."""
    if given.input_schema is not None or given.type in (None, "custom"):
        tool = tool_of(param, given.name, given.description, given.input_schema)
        yield msgspec.structs.replace(tool, is_deferred=bool(given.defer_loading))
    elif given.type.startswith(_RUN_BY_CLIENTS):
        message = f"{param}.type: the model does not know what {shown(given.type)} takes; give it as an input_schema."
        raise ApiError("unsupported_parameter", message, f"{param}.type")


def _choice(wanted: CountTokensRequest, told: ToldTools) -> ToolChoice:
    tools = tuple(tool for tool in told.callable if tool.name not in told.removed)
    requested = _requested_choice(wanted)
    deferred = {tool.name for tool in wanted.tools or () if tool.defer_loading}
    for name in deferred.intersection(requested.names).difference(tool.name for tool in tools):
        message = f"tool_choice: {shown(name)} has defer_loading, and nothing in messages has it loaded."
        raise ApiError("invalid_value", message, "tool_choice")
    found = check_choice("tool_choice", requested, tools)
    if not told.removed or found.names:
        return found
    names = tuple(tool.name for tool in tools)
    return ToolChoice(found.mode if names else "none", names)


def _requested_choice(wanted: CountTokensRequest) -> ToolChoice:
    choice = wanted.tool_choice
    if choice is None:
        return ToolChoice()
    if choice.type == "tool" and choice.name is None:
        raise ApiError("missing_parameter", "tool_choice.name is missing.", "tool_choice.name")
    names = (choice.name,) if choice.type == "tool" and choice.name is not None else ()
    return ToolChoice(_MODES[choice.type], names)  # type: ignore[arg-type]


# --- thinking, form --------------------------------------------------------------------------------------------------


def _variables(wanted: CountTokensRequest) -> dict[str, Any]:
    effort = wanted.output_config.effort if wanted.output_config is not None else None
    switch = SWITCHES.get(wanted.thinking.type) if wanted.thinking is not None else None
    variables = thinking_variables(None, switch)
    return variables if effort is None else {**variables, "reasoning_effort": _EFFORTS.get(effort, effort)}


def _thinking_tokens(wanted: MessagesRequest) -> int | None:
    thinking = wanted.thinking
    if thinking is None or thinking.type == "disabled" or thinking.budget_tokens is None:
        return None
    return min(_at_least(1, "thinking.budget_tokens", thinking.budget_tokens), limits.THINKING_TOKENS_MAX)


def _constraint(wanted: MessagesRequest) -> Constraint | None:
    config_format = wanted.output_config.format if wanted.output_config is not None else None
    form, param = (
        (config_format, "output_config.format")
        if config_format is not None
        else (wanted.output_format, "output_format")
    )
    if form is None:
        return None
    return schema_constraint(f"{param}.schema", form.form)
