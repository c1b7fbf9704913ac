"""Turns Anthropic's messages into the messages of a conversation. The result is the same as for a request of OpenAI's
API with the same conversation. All functions are pure.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import groupby
from typing import Any

import msgspec

from ...core import limits
from ...core.errors import check_count, invalid_type, missing, quoted, required, unsupported
from ...core.generation_request import PlainMessage, PlainToolCall, Role
from ..conversation import Piece, answerable, is_attachment, joined, newest_question, placeholder, role_of
from .deferred import ADDITION, REMOVAL, HistoryTools, change_of, definitions
from .wire import InnerPart, InputBlock, InputTurn, ResultPart, Source

Unread = Callable[[str, str], str]
"""Function for parts that are not text. Its arguments are the path and type of the part. Returns the text that replaces
the part, or raises ApiError.
"""


def refuse_part(path: str, kind: str) -> str:
    """Refuses a part that is not text. The error must name the block, because Claude Code then repeats the request
    without this block.
    """
    at = f"{path}.{kind}" if is_attachment(kind) else path
    raise unsupported(at, f"blocks of type {quoted(kind)} are not supported; the model reads text only")


def replace_part(_: str, kind: str) -> str:
    """Returns a text that replaces the part. Used for parts of tool results that are not text."""
    return placeholder(kind)


def replace_attachment(path: str, kind: str) -> str:
    """Returns a text that replaces the part if the part is an attachment. Otherwise refuses the part. Used for earlier
    questions.
    """
    return placeholder(kind) if is_attachment(kind) else refuse_part(path, kind)


def text_of(path: str, block: InputBlock | ResultPart, unread: Unread) -> str:
    """Returns the text of a block or part. `unread` handles a block or part that is not text. Raises an ApiError that
    names a missing member.
    """
    source = block.source
    if block.type == "text":
        return required(f"{path}.text", block.text)
    if block.type == "search_result":
        url = source if isinstance(source, str) else None
        return _lines(block.title, url, _inner(f"{path}.content", block.content, unread))
    if block.type == "document" and isinstance(source, Source) and source.type in ("text", "content"):
        return _lines(block.title, block.context, _document(f"{path}.source", source, unread))
    if isinstance(block, ResultPart) and block.type == "tool_reference":
        return required(f"{path}.tool_name", block.tool_name)
    return unread(path, block.type)


def _document(path: str, source: Source, unread: Unread) -> str:
    return (
        required(f"{path}.data", source.data)
        if source.type == "text"
        else _inner(f"{path}.content", source.content, unread)
    )


def _inner(path: str, content: str | Sequence[InnerPart | ResultPart] | dict[str, Any] | None, unread: Unread) -> str:
    if content is None or isinstance(content, str):
        return content or ""
    if isinstance(content, dict):
        raise invalid_type(path, "expected text or a list, got an object")
    at = [(f"{path}[{n}]", part) for n, part in enumerate(content)]
    return "\n".join(
        required(f"{path}.text", part.text) if part.type == "text" else unread(path, part.type) for path, part in at
    )


def _lines(*texts: str | None) -> str:
    return "\n".join(filter(None, texts))


_ROLES: dict[str, Role] = {"user": "user", "assistant": "assistant", "system": "system"}
_IGNORED = ("redacted_thinking", "server_tool_use", "mcp_tool_use", "mcp_tool_listing", "fallback")
_SERVER_RESULT = "_tool_result"
"""Suffix of the types of blocks with results of tools that Anthropic's servers ran. Such blocks are ignored."""
_BILLING = "x-anthropic-billing-header:"
FILLERS = (
    "(no content)",
    "[Empty text removed]",
    "[System: Empty message content sanitised to satisfy protocol]",
)
"""Texts that Claude Code and LiteLLM send instead of an empty text, because Anthropic's API refuses an empty text."""
_ERROR = "Error: "


def messages_of(
    system: str | list[InputBlock] | None, turns: Sequence[InputTurn], history_tools: HistoryTools
) -> list[PlainMessage]:
    """Returns the messages. Raises an ApiError that names a block that cannot be rendered."""
    newest = newest_question([_speaker(turn) for turn in turns])
    last = max((n for n, turn in enumerate(turns) if turn.role == "user"), default=0)
    found = [
        message
        for n, turn in enumerate(turns)
        for message in _turn(
            f"messages[{n}]", turn, history_tools, refuse_part if n == newest else replace_attachment, is_past=n < last
        )
    ]
    check_count("messages", len(found), limits.MESSAGES_MAX, "messages and results of tools")
    answerable("messages", found)
    return [*_system(system), *_in_order_of_calls(found)]


def _system(system: str | list[InputBlock] | None) -> list[PlainMessage]:
    """Returns the system message, or nothing if it has no text. Drops a first line about billing. This line is
    different in each request. A prompt with this line would have no prefix in common with earlier prompts.
    """
    blocks = [(system, False)] if isinstance(system, str) else list(_texts("system", system or ()))
    if blocks and blocks[0][0].startswith(_BILLING):
        rest = blocks[0][0].partition("\n")[2]
        blocks[:1] = [(rest, blocks[0][1])] if rest.strip() else []
    text, marks = joined(blocks, "\n")
    return [PlainMessage("system", text, marks=marks)] if text.strip() else []


def _speaker(turn: InputTurn) -> str:
    """Returns the role of the turn, or "tool" if the turn has results of tools."""
    is_results = isinstance(turn.content, list) and any(block.type == "tool_result" for block in turn.content)
    return "tool" if turn.role == "user" and is_results else turn.role


def _turn(
    path: str, turn: InputTurn, history_tools: HistoryTools, unread: Unread, *, is_past: bool
) -> list[PlainMessage]:
    """Returns the messages of a turn. `is_past` is true if a turn of the user follows later."""
    role = role_of(path, turn.role, _ROLES)
    if turn.content is None:
        if role != "system":
            raise missing(f"{path}.content")
        return []
    blocks = [InputBlock("text", turn.content)] if isinstance(turn.content, str) else turn.content
    if role == "assistant":
        return _answer(f"{path}.content", blocks)
    if role == "user":
        return _question(f"{path}.content", blocks, history_tools, unread)
    is_cleared = is_past and turn.clear_at == "next_user_message"
    return _directive(f"{path}.content", blocks, history_tools, is_cleared=is_cleared)


def _directive(
    path: str, blocks: list[InputBlock], history_tools: HistoryTools, *, is_cleared: bool
) -> list[PlainMessage]:
    """Returns the message of a system turn. If `is_cleared` is true, the text of the turn is left out, and only its
    added and removed tools remain.
    """
    pieces = []
    for at, block in _with_paths(path, blocks):
        if block.type in (ADDITION, REMOVAL):
            pieces.append((change_of(at, block, history_tools), _is_marked(block)))
        elif not is_cleared:
            pieces.append((_text(at, block), _is_marked(block)))
    if is_cleared and not pieces:
        return []
    text, marks = joined(pieces, "\n")
    return [PlainMessage("system", text, marks=marks)]


def _question(path: str, blocks: list[InputBlock], history_tools: HistoryTools, unread: Unread) -> list[PlainMessage]:
    """Returns the messages of a user's turn. Tool results come first, because templates expect them directly after the
    tool calls.
    """
    results, texts = [], []
    for at, block in _with_paths(path, blocks):
        if block.type == "tool_result":
            results.append(_result(at, block, history_tools))
        else:
            texts.append((text_of(at, block, unread), _is_marked(block)))
    if results and not texts:
        return results
    text, marks = joined(texts, "\n")
    return [*results, PlainMessage("user", text, marks=marks)]


def _answer(path: str, blocks: list[InputBlock]) -> list[PlainMessage]:
    """Returns the message of an assistant's turn, or nothing if the turn is empty. Clients send empty turns after an
    aborted stream.
    """
    texts, thoughts, calls = [], [], []
    for at, block in _with_paths(path, blocks):
        if block.type == "thinking":
            thoughts.append(required(f"{at}.thinking", block.thinking))
        elif block.type == "tool_use":
            calls.append(_call(at, block))
        elif block.type == "compaction":
            texts.append(_summary(at, block))
        elif block.type not in _IGNORED and not block.type.endswith(_SERVER_RESULT):
            texts.append(_text(at, block))
    # Texts are joined even if tool calls or reasoning came between them, because PlainMessage has separate members for
    # tool calls and reasoning.
    text = "".join(one for one in texts if one.strip() not in FILLERS)
    if not text.strip() and not calls:
        return []
    marks = (len(text),) if any(map(_is_marked, blocks)) else ()
    return [PlainMessage("assistant", text, tuple(calls), reasoning="".join(thoughts) or None, marks=marks)]


def _summary(path: str, block: InputBlock) -> str:
    """Returns the text of a compaction block. The text is a summary that the client sends instead of the messages
    before the block.
    """
    if block.content is None or isinstance(block.content, str):
        return f"{block.content}\n\n" if block.content else ""
    raise invalid_type(f"{path}.content", "expected a text")


def _call(path: str, block: InputBlock) -> PlainToolCall:
    arguments = msgspec.json.encode(block.input or {}).decode()
    return PlainToolCall(required(f"{path}.name", block.name), arguments, block.id)


def _result(path: str, block: InputBlock, history_tools: HistoryTools) -> PlainMessage:
    call = required(f"{path}.tool_use_id", block.tool_use_id)
    parts = list(_parts(f"{path}.content", block.content, history_tools))
    text = (_ERROR if block.is_error else "") + "\n".join(text for text, _ in parts)
    marks = (len(text),) if _is_marked(block) or any(is_marked for _, is_marked in parts) else ()
    return PlainMessage("tool", text, tool_call_id=call, marks=marks)


def _parts(
    path: str, content: str | list[ResultPart] | dict[str, Any] | None, history_tools: HistoryTools
) -> Iterator[Piece]:
    if content is None or isinstance(content, str):
        yield content or "", False
        return
    if isinstance(content, dict):
        raise invalid_type(path, "expected text or a list, got an object")
    with_paths = ((f"{path}[{n}]", part) for n, part in enumerate(content))
    for defines, run in groupby(with_paths, lambda one: one[0] in history_tools.definitions_at):
        parts = list(run)
        if defines:
            yield (
                definitions(history_tools.definitions_at[at] for at, _ in parts),
                any(_is_marked(part) for _, part in parts),
            )
        else:
            yield from ((text_of(at, part, replace_part), _is_marked(part)) for at, part in parts)


def _with_paths(path: str, blocks: Iterable[InputBlock]) -> Iterator[tuple[str, InputBlock]]:
    return ((f"{path}[{n}]", block) for n, block in enumerate(blocks))


def _texts(path: str, blocks: Iterable[InputBlock]) -> Iterator[Piece]:
    return ((_text(at, block), _is_marked(block)) for at, block in _with_paths(path, blocks))


def _text(path: str, block: InputBlock) -> str:
    return required(f"{path}.text", block.text) if block.type == "text" else refuse_part(path, block.type)


def _is_marked(block: InputBlock | ResultPart) -> bool:
    return block.cache_control is not None


def _in_order_of_calls(messages: list[PlainMessage]) -> list[PlainMessage]:
    """Sorts the results of parallel tool calls in the order of the calls. Otherwise the prompt would change, because
    clients can send the results in a different order in each request.
    """
    found: list[PlainMessage] = []
    numbers: dict[str | None, int] = {}
    for is_results, group in groupby(messages, lambda message: message.role == "tool"):
        run = list(group)
        numbers.update((call.id, n) for message in run for n, call in enumerate(message.tool_calls))
        found += sorted(run, key=lambda result: numbers.get(result.tool_call_id, len(numbers))) if is_results else run
    return found
