"""Deferred tools (defer_loading), and tools that a message adds or removes. The list of tools at the beginning of the
prompt does not have the definition of a deferred tool. The definition is at the place where a message names the tool.
All functions are pure.

If a message adds or removes a tool, the prompt before this message stays the same. A definition is shown only once,
where a message first names the tool. Later messages do not move the definition. So if the messages are sent again with
further messages, their part of the prompt stays the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import msgspec

from ...core.errors import invalid_value, quoted, required, unsupported
from ...core.generation_request import Tool
from .wire import InputBlock, InputTurn

REFERENCE, ADDITION, REMOVAL = "tool_reference", "tool_addition", "tool_removal"


@dataclass(frozen=True, slots=True)
class HistoryTools:
    callable: tuple[Tool, ...]
    """All tools that are not deferred, and the deferred tools that a message has named or added and no later message
    has removed.
    """
    removed: frozenset[str]
    """Names of tools in `callable` that a message has removed. The prompt still lists these tools, but the answer must
    not call them.
    """
    definitions_at: Mapping[str, Tool]
    """For each deferred tool, maps the path of the first block that names the tool to the tool. The prompt shows the
    tool's definition at this block.
    """


def tools_of_history(tools: Sequence[Tool], turns: Sequence[InputTurn]) -> HistoryTools:
    """Returns which tools can be called after these messages, and where their definitions are shown. Raises an ApiError
    if a message adds or removes a tool that the request does not have. The error names the block.
    """
    known = {tool.name: tool for tool in tools}
    definitions_at: dict[str, Tool] = {}
    is_defined = {tool.name: not tool.is_deferred for tool in tools}
    is_callable = dict(is_defined)
    for path, kind, name in _mentions(turns):
        if name not in known:
            if kind == REFERENCE:
                continue
            raise invalid_value(f"{path}.tool", f"the request has no tool {quoted(name)}")
        is_callable[name] = kind != REMOVAL
        if is_callable[name] and not is_defined[name]:
            is_defined[name] = True
            definitions_at[path] = known[name]
    listed = tuple(tool for tool in tools if not tool.is_deferred or is_callable[tool.name])
    return HistoryTools(listed, frozenset(tool.name for tool in listed if not is_callable[tool.name]), definitions_at)


def definitions(tools: Iterable[Tool]) -> str:
    """Returns the definitions, one per line, in the format that the system prompts of clients describe to the model."""
    lines = (
        msgspec.json.encode({"description": tool.description, "name": tool.name, "parameters": tool.parameters})
        for tool in tools
    )
    return "\n".join(["<functions>", *(f"<function>{line.decode()}</function>" for line in lines), "</functions>"])


def change_of(path: str, block: InputBlock, history_tools: HistoryTools) -> str:
    """Returns the text that tells the model about an added or removed tool."""
    name = _changed(path, block)
    if block.type == REMOVAL:
        return f"The function {name} can no longer be called."
    tool = history_tools.definitions_at.get(path)
    return definitions([tool]) if tool is not None else f"The function {name} can be called."


def _mentions(turns: Sequence[InputTurn]) -> Iterator[tuple[str, str, str]]:
    """Yields the path, kind and tool name of each block that names, adds or removes a tool. Clients send tool
    results in any order. Blocks in tool results are yielded in the order of the calls, so the prompt stays the same.
    """
    calls: dict[str | None, int] = {}
    results: list[tuple[int, list[tuple[str, str, str]]]] = []
    n_calls = 0
    for n, turn in enumerate(turns):
        for i, block in enumerate(turn.content if isinstance(turn.content, list) else ()):
            path = f"messages[{n}].content[{i}]"
            if turn.role == "assistant" and block.type == "tool_use":
                calls[block.id] = n_calls
                n_calls += 1
            elif turn.role == "user" and block.type == "tool_result":
                results.append((calls.get(block.tool_use_id, n_calls), list(_referenced(path, block))))
            elif turn.role == "system" and block.type in (ADDITION, REMOVAL):
                results.append((n_calls, [(path, block.type, _changed(path, block))]))
    for _, mentions in sorted(results, key=lambda result: result[0]):
        yield from mentions


def _referenced(path: str, block: InputBlock) -> Iterator[tuple[str, str, str]]:
    for n, part in enumerate(block.content if isinstance(block.content, list) else ()):
        if part.type == REFERENCE and part.tool_name is not None:
            yield f"{path}.content[{n}]", REFERENCE, part.tool_name


def _changed(path: str, block: InputBlock) -> str:
    """Returns the name of the added or removed tool."""
    tool = required(f"{path}.tool", block.tool)
    if tool.type != REFERENCE:
        raise unsupported(
            f"{path}.tool", f"{quoted(tool.type)} is not supported; the only supported type is {REFERENCE}"
        )
    return required(f"{path}.tool.name", tool.name)
