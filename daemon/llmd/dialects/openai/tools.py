"""Turns `tools` or `functions` of a chat request into the tools that the answer can call. All functions are pure."""

from __future__ import annotations

from collections.abc import Iterator

from ...core import limits
from ...core.errors import check_count, invalid_value, required
from ...core.generation_request import Tool, ToolChoice
from ...core.tools import check_choice, distinct, tool_of
from ..custom_tools import OfferedFunction, custom_tool
from ..reading import choice_among, choice_by_word
from .wire import request as wire


def tools_of(body: wire.ChatCompletionRequest) -> tuple[Tool, ...]:
    """Returns the functions and custom tools. Tools of other types are left out, because they run on the provider's
    servers.

    Raises an ApiError that names the invalid member of a tool.
    """
    if body.functions and body.tools:
        raise invalid_value("functions", "the request has tools, too; send either functions or tools")
    if body.functions:
        check_count("functions", len(body.functions), limits.TOOLS_MAX, "tools")
        return distinct(_tool(f"functions[{n}]", function) for n, function in enumerate(body.functions))
    check_count("tools", len(body.tools or ()), limits.TOOLS_MAX, "tools")
    return distinct(_callable(body.tools or []))


def _callable(tools: list[wire.ChatTool]) -> Iterator[Tool]:
    for n, tool in enumerate(tools):
        if tool.kind not in ("function", "custom"):
            continue
        path = f"tools[{n}].{tool.kind}"
        if tool.kind == "function":
            yield _tool(path, required(path, tool.function))
            continue
        custom = required(path, tool.custom)
        grammar = custom.format.grammar if isinstance(custom.format, wire.ChatGrammar) else None
        yield custom_tool(path, custom.name, custom.description, grammar)


def _tool(path: str, function: OfferedFunction) -> Tool:
    return tool_of(path, function.name, function.description, function.parameters)


def custom_names(body: wire.ChatCompletionRequest) -> frozenset[str]:
    """Returns the names of the custom tools. Calls of these tools are returned with the type custom. If several tools
    have the same name, the first one counts.
    """
    named = [(tool.custom if tool.kind == "custom" else tool.function, tool.kind) for tool in body.tools or ()]
    kinds = {tool.name: kind for tool, kind in reversed(named) if tool is not None and kind in ("function", "custom")}
    return frozenset(name for name, kind in kinds.items() if kind == "custom")


def is_legacy(body: wire.ChatCompletionRequest) -> bool:
    """Returns whether the request uses the old functions API (`functions`). In that API, an answer has at most one tool
    call, and the tool call has no id.
    """
    return bool(body.functions)


def choice_of(body: wire.ChatCompletionRequest, tools: tuple[Tool, ...]) -> ToolChoice:
    """Returns the tool choice. Raises ApiError if the choice names a tool that the request does not have."""
    of_other, others = ("tool_choice", "tools") if is_legacy(body) else ("function_call", "functions")
    other_choice = getattr(body, of_other)
    if other_choice not in (None, "auto") and (other_choice != "none" or tools):
        raise invalid_value(of_other, f"the request has no {others} to choose from")
    if is_legacy(body):
        call = body.function_call
        found = ToolChoice("required", (call.name,)) if isinstance(call, wire.NamedFunction) else choice_by_word(call)
        return check_choice("function_call", found, tools)
    return check_choice("tool_choice", _tool_choice(body.tool_choice), tools)


def _tool_choice(choice: str | wire.ChatToolChoice | None) -> ToolChoice:
    if not isinstance(choice, wire.ChatToolChoice):
        return choice_by_word(choice)
    if choice.type != "allowed_tools":
        return ToolChoice("required", (_tool_name(f"tool_choice.{choice.type}", choice),))
    allowed = required("tool_choice.allowed_tools", choice.allowed_tools)
    param = "tool_choice.allowed_tools.tools"
    chosen = ((n, tool) for n, tool in enumerate(allowed.tools) if tool.kind in ("function", "custom"))
    return choice_among(param, allowed.mode, (_tool_name(f"{param}[{n}].{tool.kind}", tool) for n, tool in chosen))


def _tool_name(path: str, choice: wire.NamedTool | wire.ChatToolChoice) -> str:
    return required(path, choice.custom if choice.type == "custom" else choice.function).name
