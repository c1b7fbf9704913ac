"""Turns the tools of a request into functions that the model can call. Turns the name in a call of the model into the
client's name of the tool. All functions are pure.

The model's name of a tool in a namespace is NAMESPACE__NAME. Tools of other types than function and custom run on the
provider's servers, and are left out. The exceptions are the types in `_RUN_BY_CLIENTS`, which are refused.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import msgspec

from ...core import limits
from ...core.errors import check_count, required, unsupported
from ...core.generation_request import Tool, ToolChoice
from ...core.tools import check_choice, distinct, tool_of
from ...http.decode import decoded
from ..conversation import only_server_tools
from ..custom_tools import Grammar, OfferedFunction, custom_tool
from ..reading import choice_among, choice_by_word
from .wire import ChosenTool, CustomTool, NamespaceTool, ToolKind

_SEPARATOR = "__"
_CALLABLE = ("function", "custom")
_RUN_BY_CLIENTS = ("local_shell", "shell", "apply_patch", "computer", "computer_use_preview")
"""Types of tools that clients run. A client expects a call of such a tool as an item of a special type. llmd cannot
make such items, so it refuses these tools.
"""


@dataclass(frozen=True, slots=True)
class ToolName:
    name: str
    namespace: str | None = None
    is_custom: bool = False


@dataclass(frozen=True, slots=True)
class Offered:
    tools: tuple[Tool, ...] = ()
    names: dict[str, ToolName] = field(default_factory=dict)
    """Maps the model's name of a tool to the client's name."""

    def name_of(self, called: str) -> ToolName:
        """Returns the client's name of a tool. `called` is the name in the model's call. If the request has no tool of
        this name, `called` is returned unchanged.
        """
        return self.names.get(called, ToolName(called))


def called_as(name: str, namespace: str | None) -> str:
    """Returns the model's name of a tool."""
    if not namespace:
        return name
    return f"{namespace}{'' if namespace.endswith(_SEPARATOR) else _SEPARATOR}{name}"


def offered(lists: Sequence[tuple[str, Sequence[msgspec.Raw]]]) -> Offered:
    """Returns the tools of all lists of a request. `lists` has, for each list, the client's name of the list and its
    tools. Raises an ApiError that names the invalid member of a tool.
    """
    found = [pair for path, tools in lists for pair in _tools(path, tools)]
    if not found:
        _refuse_server_tools(lists)
    check_count("tools", len(found), limits.TOOLS_MAX, "tools")
    names: dict[str, ToolName] = {}
    for tool, name in found:
        names.setdefault(tool.name, name)
    return Offered(distinct(tool for tool, _ in found), names)


def _tools(path: str, tools: Sequence[msgspec.Raw], namespace: str | None = None) -> Iterator[tuple[Tool, ToolName]]:
    for n, raw in enumerate(tools):
        at = f"{path}[{n}]"
        kind = decoded(bytes(raw), ToolKind, at).type
        if kind == "function":
            function = decoded(bytes(raw), OfferedFunction, at)
            called = called_as(function.name, namespace)
            yield tool_of(at, called, function.description, function.parameters), ToolName(function.name, namespace)
        elif kind == "custom":
            yield _custom(at, decoded(bytes(raw), CustomTool, at), namespace)
        elif kind == "namespace" and namespace is None:
            inner = decoded(bytes(raw), NamespaceTool, at)
            yield from _tools(f"{at}.tools", inner.tools, inner.name)
        elif kind in _RUN_BY_CLIENTS:
            raise unsupported(f"{at}.type", f"{kind} is not supported; send the tool as a function or a custom tool")


def _refuse_server_tools(lists: Sequence[tuple[str, Sequence[msgspec.Raw]]]) -> None:
    """Called if the model can call none of the tools in `lists`. If the lists have tools, all of them run on a
    provider's servers, and this function raises ApiError. A namespace alone does not count as a tool.
    """
    for path, tools in lists:
        for n, raw in enumerate(tools):
            kind = decoded(bytes(raw), ToolKind, f"{path}[{n}]").type
            if kind != "namespace":
                raise only_server_tools(f"{path}[{n}].type", kind)


def _custom(path: str, tool: CustomTool, namespace: str | None) -> tuple[Tool, ToolName]:
    grammar = tool.format if isinstance(tool.format, Grammar) else None
    offered_as = custom_tool(path, called_as(tool.name, namespace), tool.description, grammar)
    return offered_as, ToolName(tool.name, namespace, is_custom=True)


# --- tool choice -----------------------------------------------------------------------------------------------------


def choice_of(choice: str | ChosenTool | None, offered_tools: Offered) -> ToolChoice:
    """Returns the tool choice. Raises ApiError if the choice names a tool that the request does not have."""
    return check_choice("tool_choice", _choice(choice), offered_tools.tools)


def _choice(choice: str | ChosenTool | None) -> ToolChoice:
    if not isinstance(choice, ChosenTool):
        return choice_by_word(choice)
    if choice.type != "allowed_tools":
        return ToolChoice("required", (_chosen("tool_choice", choice),))
    chosen = ((f"tool_choice.tools[{n}]", tool) for n, tool in enumerate(choice.tools))
    names = (_chosen(path, tool) for path, tool in chosen if tool.type in _CALLABLE)
    return choice_among("tool_choice.tools", choice.mode, names)


def _chosen(path: str, tool: ChosenTool) -> str:
    if tool.type not in _CALLABLE:
        raise unsupported(
            f"{path}.type", f"tools of type {tool.type} cannot be chosen; only functions and custom tools can"
        )
    return called_as(required(f"{path}.name", tool.name), tool.namespace)
