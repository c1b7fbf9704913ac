"""From the parts of a whole answer to the blocks of a message. Pure."""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Any

import msgspec

from ...core.parts import Part, ReasoningPart, TextPart, ToolCallPiece
from ..arguments import object_of
from .wire import AnswerBlock, TextBlock, ThinkingBlock, ToolUseBlock

SIGNATURE = "llmd"
"""The signature of all reasoning. It proves nothing, but clients drop reasoning without one."""
Place = tuple[type[Part], int]
Said = TextPart | ReasoningPart | ToolCallPiece


def place_of(part: Said) -> Place:
    """Successive parts with the same place are one block."""
    return type(part), part.call if isinstance(part, ToolCallPiece) else 0


def call_id(piece: ToolCallPiece) -> str:
    return piece.id or "toolu_" + secrets.token_hex(12)


def blocks_of(parts: Sequence[Part], *, is_cut: bool) -> list[AnswerBlock]:
    """`is_cut`: a call of it may not be whole."""
    said = (part for part in parts if isinstance(part, Said))
    return [block for _, run in groupby(said, place_of) for block in _block(list(run), is_cut)]


def _block(run: list[Any], is_cut: bool) -> Iterator[AnswerBlock]:
    first = run[0]
    if isinstance(first, ToolCallPiece):
        yield _call(first, "".join(piece.arguments for piece in run), is_cut)
        return
    text = "".join(part.text for part in run)
    if text:
        yield ThinkingBlock(text, SIGNATURE) if isinstance(first, ReasoningPart) else TextBlock(text)


def _call(first: ToolCallPiece, arguments: str, is_cut: bool) -> AnswerBlock:
    """Returns the call as the model wrote it, as text, if its arguments are not an object."""
    name = first.name or ""
    try:
        found = msgspec.json.decode(object_of(arguments, is_cut=is_cut) or b"", type=dict[str, Any])
    except (msgspec.DecodeError, RecursionError):
        return TextBlock(f"{name}({arguments})")
    return ToolUseBlock(call_id(first), name, found)
