"""The text of a block for a model that reads text only: its own, or that of a document or a search result. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ...core.errors import ApiError, quoted
from ..conversation import is_attachment, placeholder
from .wire import InnerPart, InputBlock, ResultPart, Source

Unread = Callable[[str, str], str]
"""Returns the replacement of a part that is not text, by its path and type, or raises ApiError."""


def refuse_part(path: str, kind: str) -> str:
    """Refuses an attachment of the newest message. Claude Code leaves out the block that is named, and tries again."""
    at = f"{path}.{kind}" if is_attachment(kind) else path
    message = f"{at}: blocks of type {quoted(kind)} are not supported; the model reads text only."
    raise ApiError("unsupported_parameter", message, at)


def replace_part(_: str, kind: str) -> str:
    """Replaces a part of a tool's result."""
    return placeholder(kind)


def replace_attachment(path: str, kind: str) -> str:
    """Replaces an attachment of an earlier question."""
    return placeholder(kind) if is_attachment(kind) else refuse_part(path, kind)


def required(path: str, name: str, value: str | None) -> str:
    if value is None:
        raise missing(path, name)
    return value


def missing(path: str, name: str) -> ApiError:
    return ApiError("missing_parameter", f"{path}.{name} is missing.", f"{path}.{name}")


def text_of(path: str, block: InputBlock | ResultPart, unread: Unread) -> str:
    """Raises ApiError naming what is missing."""
    source = block.source
    if block.type == "text":
        return required(path, "text", block.text)
    if block.type == "search_result":
        url = source if isinstance(source, str) else None
        return _lines(block.title, url, _inner(f"{path}.content", block.content, unread))
    if block.type == "document" and isinstance(source, Source) and source.type in ("text", "content"):
        return _lines(block.title, block.context, _document(f"{path}.source", source, unread))
    if isinstance(block, ResultPart) and block.type == "tool_reference":
        return required(path, "tool_name", block.tool_name)
    return unread(path, block.type)


def _document(path: str, source: Source, unread: Unread) -> str:
    return (
        required(path, "data", source.data)
        if source.type == "text"
        else _inner(f"{path}.content", source.content, unread)
    )


def _inner(path: str, content: str | Sequence[InnerPart | ResultPart] | dict[str, Any] | None, unread: Unread) -> str:
    if content is None or isinstance(content, str):
        return content or ""
    if isinstance(content, dict):
        raise ApiError("invalid_type", f"{path}: expected text or a list, got an object.", path)
    at = [(f"{path}[{n}]", part) for n, part in enumerate(content)]
    return "\n".join(
        required(path, "text", part.text) if part.type == "text" else unread(path, part.type) for path, part in at
    )


def _lines(*texts: str | None) -> str:
    return "\n".join(filter(None, texts))
