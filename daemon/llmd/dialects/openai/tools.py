"""From the tools of a chat, or its functions, to those that the answer may call. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from ...core.asked import Tool, ToolChoice
from ...core.errors import ApiError
from ...core.tools import check_choice, check_count, distinct, tool_of
from . import wire


def tools_of(wanted: wire.ChatCompletionRequest) -> tuple[Tool, ...]:
    """Those of type function: others name what their maker runs, and the model cannot call it.

    Raises ApiError naming the tool and its member.
    """
    if wanted.functions and wanted.tools:
        raise ApiError("invalid_value", "functions: tools are there, too; only one of them is taken.", "functions")
    if wanted.functions:
        check_count("functions", len(wanted.functions))
        return distinct(_tool(f"functions[{n}]", function) for n, function in enumerate(wanted.functions))
    check_count("tools", len(wanted.tools or ()))
    return distinct(_functions(wanted.tools or []))


def _functions(tools: list[wire.ChatTool]) -> Iterator[Tool]:
    for n, tool in enumerate(tools):
        if tool.type == "function":
            path = f"tools[{n}].function"
            if tool.function is None:
                raise ApiError("missing_parameter", f"{path} is missing.", path)
            yield _tool(path, tool.function)


def _tool(path: str, function: wire.ChatFunction) -> Tool:
    return tool_of(path, function.name, function.description, function.parameters)


def is_legacy(wanted: wire.ChatCompletionRequest) -> bool:
    """Whether calls are told as the first interface had them: one for each answer, without an id."""
    return bool(wanted.functions)


def choice_of(wanted: wire.ChatCompletionRequest, tools: tuple[Tool, ...]) -> ToolChoice:
    """Raises ApiError when what is asked for is not there."""
    if is_legacy(wanted):
        return check_choice("function_call", _function_call(wanted.function_call), tools)
    return check_choice("tool_choice", _tool_choice(wanted.tool_choice), tools)


def _function_call(wanted: str | wire.NamedFunction | None) -> ToolChoice:
    if isinstance(wanted, wire.NamedFunction):
        return ToolChoice("required", (wanted.name,))
    return ToolChoice("none" if wanted == "none" else "auto")


def _tool_choice(wanted: str | wire.ChatToolChoice | None) -> ToolChoice:
    if wanted is None or wanted == "auto":
        return ToolChoice()
    if not isinstance(wanted, wire.ChatToolChoice):
        return ToolChoice("none" if wanted == "none" else "required")
    if wanted.type == "function":
        if wanted.function is None:
            raise ApiError("missing_parameter", "tool_choice.function is missing.", "tool_choice.function")
        return ToolChoice("required", (wanted.function.name,))
    allowed = wanted.allowed_tools
    if allowed is None:
        raise ApiError("missing_parameter", "tool_choice.allowed_tools is missing.", "tool_choice.allowed_tools")
    names = tuple(dict.fromkeys(tool.function.name for tool in allowed.tools if tool.function is not None))
    if not names:
        param = "tool_choice.allowed_tools.tools"
        raise ApiError("invalid_value", f"{param}: none of them is a function.", param)
    return ToolChoice(allowed.mode, names)
