"""Checks the tools of a request: their names, their schemas, and tool_choice. Also checks whether the arguments of a
tool call are complete. All functions are pure.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from . import limits
from .errors import invalid_value, quoted
from .generation_request import Tool, ToolChoice

_NAME = re.compile(r"[A-Za-z0-9_.:/-]+")
_NO_PARAMETERS = {"type": "object", "properties": {}}


def tool_of(param: str, name: str, description: str | None, parameters: dict[str, Any] | None) -> Tool:
    """Returns a checked tool. `param` is the client's name of the object whose members are `name`, `description` and
    `parameters`. Raises an ApiError that names the invalid member.
    """
    check_name(f"{param}.name", name)
    most = limits.TOOL_SCHEMA_DEPTH_MAX
    if parameters is not None and not _fits(parameters, most):
        field = f"{param}.parameters"
        raise invalid_value(field, f"the schema is nested more than {most} levels deep")
    return Tool(name, description or "", parameters or _NO_PARAMETERS)


def check_name(param: str, name: str) -> None:
    most = limits.TOOL_NAME_CHARS_MAX
    if len(name) > most or not _NAME.fullmatch(name):
        raise invalid_value(
            param, f"{quoted(name)} is not a valid name: use 1 to {most} letters, digits, _ - . : and / (ASCII)"
        )


def is_object(arguments: str) -> bool:
    """Returns whether the arguments of a tool call are complete. Complete arguments are a JSON object."""
    try:
        msgspec.json.decode(arguments, type=dict[str, msgspec.Raw])
    except (msgspec.DecodeError, RecursionError):
        return False
    return True


def _fits(value: dict[str, Any] | list[Any], levels: int) -> bool:
    if levels == 0:
        return False
    # A generator expression would take three times as long as this loop.
    for item in value.values() if isinstance(value, dict) else value:
        if isinstance(item, (dict, list)) and not _fits(item, levels - 1):
            return False
    return True


def distinct(tools: Iterable[Tool]) -> tuple[Tool, ...]:
    """Returns the tools without duplicates. If several tools have the same name, only the first one is returned. A tool
    call contains only the name, and could not say which of these tools it means.
    """
    found: dict[str, Tool] = {}
    for tool in tools:
        found.setdefault(tool.name, tool)
    return tuple(found.values())


def check_choice(param: str, choice: ToolChoice, tools: Sequence[Tool]) -> ToolChoice:
    """Returns the choice. Raises ApiError if the choice names a tool that the request does not have. Also raises
    ApiError if a tool call is required, but the request has no tools.
    """
    names = {tool.name for tool in tools}
    for name in choice.names:
        if name not in names:
            raise invalid_value(param, f"the request has no tool {quoted(name)}")
    if choice.mode == "required" and not tools:
        raise invalid_value(param, "a call is required, but the request has no tools")
    return choice
