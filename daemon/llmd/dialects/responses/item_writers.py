"""Writes the items of an answer: its messages, reasoning and tool calls. Each item has an item writer, which makes the
events of the item while the answer is generated, and the complete item at the end. This module does no I/O.

An `Event` in this file is only a part of a server-sent event: the event's name, and the members after sequence_number
as JSON without braces. writer.py completes the event.
"""

from __future__ import annotations

import secrets
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec import UNSET

from ...core.parts import ToolCallPiece
from ...core.tools import is_object
from ..custom_tools import CustomInput
from ..probabilities import ChosenToken
from . import wire
from .items import enclosed
from .tools import ToolName

Event = tuple[bytes, bytes]
_encode = msgspec.json.Encoder().encode


def new_id(kind: str) -> str:
    return f"{kind}_{secrets.token_hex(12)}"


class ItemWriter(ABC):
    """Writes one item. `opening` is called first, `more` for each piece of the item's text, and `closing` last."""

    kind: str
    text_event: bytes
    """Type of the events that have the item's text, without the prefix `response.` and the suffix `.delta` or
    `.done`.
    """
    part_position = b""

    def __init__(self, index: int) -> None:
        self.id = new_id(self.kind)
        self._texts: list[str] = []
        self._index = b'"output_index":%d' % index
        self._position = b'"item_id":"%b",%b%b' % (self.id.encode(), self._index, self.part_position)

    @property
    def text(self) -> str:
        return "".join(self._texts)

    def opening(self) -> list[Event]:
        return [self._item_event(b"added", "in_progress"), *self._part_events(b"added")]

    def more(self, text: str) -> list[Event]:
        self._texts.append(text)
        return [self._event(self.text_event, b"delta", b'"delta":' + _encode(text))]

    def closing(self, status: wire.ItemStatus) -> list[Event]:
        arguments_or_input = self._event(self.text_event, b"done", self._text())
        return [arguments_or_input, *self._part_events(b"done"), self._item_event(b"done", status)]

    @abstractmethod
    def output_item(self, status: wire.ItemStatus) -> wire.OutputItem:
        """Returns the item with the text that has arrived so far."""

    def _text(self) -> bytes:
        """Returns the members of the event that ends the item's text. The event has the whole text."""
        return b'"text":' + _encode(self.text)

    def _part_events(self, change: bytes) -> list[Event]:
        return []

    def _event(self, kind: bytes, change: bytes, members: bytes) -> Event:
        return b"response.%b.%b" % (kind, change), b"%b,%b" % (self._position, members)

    def _item_event(self, change: bytes, status: wire.ItemStatus) -> Event:
        return b"response.output_item." + change, b'%b,"item":%b' % (self._index, _encode(self.output_item(status)))


class PartItemWriter(ItemWriter):
    """Writes an item whose text is in a part: the item has exactly one part."""

    part_event: bytes
    """Type of the events about the part, without the prefix `response.` and the suffix `.added` or `.done`."""

    @abstractmethod
    def _part(self) -> wire.OutputText | wire.SummaryText | wire.ReasoningText: ...

    def _part_events(self, change: bytes) -> list[Event]:
        return [self._event(self.part_event, change, b'"part":' + _encode(self._part()))]


class MessageItemWriter(PartItemWriter):
    kind, text_event, part_event, part_position = "msg", b"output_text", b"content_part", b',"content_index":0'

    def __init__(self, index: int) -> None:
        super().__init__(index)
        self._logprobs: list[ChosenToken] = []

    def more(self, text: str, logprobs: Sequence[ChosenToken] = ()) -> list[Event]:
        self._logprobs += logprobs
        [(name, members)] = super().more(text)
        return [(name, members + b',"logprobs":' + (_encode(logprobs) if logprobs else b"[]"))]

    def output_item(self, status: wire.ItemStatus) -> wire.OutputMessage:
        return wire.OutputMessage(id=self.id, status=status, content=[self._part()] if status != "in_progress" else [])

    def _text(self) -> bytes:
        return super()._text() + b',"logprobs":' + _encode(self._logprobs)

    def _part(self) -> wire.OutputText:
        return wire.OutputText(text=self.text, logprobs=self._logprobs)


class ReasoningItemWriter(PartItemWriter):
    """Writes reasoning: as a summary if the request asks for a summary, otherwise as reasoning_text."""

    kind = "rs"

    def __init__(self, index: int, *, is_summary: bool, is_enclosed: bool) -> None:
        self._is_summary = is_summary
        self._is_enclosed = is_enclosed
        self.text_event, self.part_event, self.part_position = b"reasoning_text", b"content_part", b',"content_index":0'
        if is_summary:
            self.text_event, self.part_event = b"reasoning_summary_text", b"reasoning_summary_part"
            self.part_position = b',"summary_index":0'
        super().__init__(index)

    def output_item(self, status: wire.ItemStatus) -> wire.OutputReasoning:
        is_over, part = status != "in_progress", self._part()
        return wire.OutputReasoning(
            id=self.id,
            status=status,
            summary=[part] if is_over and isinstance(part, wire.SummaryText) else [],
            content=[part] if is_over and isinstance(part, wire.ReasoningText) else UNSET,
            encrypted_content=enclosed(self.text) if is_over and self._is_enclosed else UNSET,
        )

    def _part(self) -> wire.SummaryText | wire.ReasoningText:
        return wire.SummaryText(self.text) if self._is_summary else wire.ReasoningText(self.text)


class CallItemWriter(ItemWriter):
    """Writes a function call. The text of the item is the call's arguments."""

    kind, text_event = "fc", b"function_call_arguments"

    def __init__(self, index: int, name: ToolName, call_id: str) -> None:
        super().__init__(index)
        self._name = name
        self._call_id = call_id

    def is_complete(self) -> bool:
        """Returns whether all arguments have arrived."""
        return is_object(self.text)

    def output_item(self, status: wire.ItemStatus) -> wire.OutputFunctionCall | wire.OutputCustomCall:
        return wire.OutputFunctionCall(arguments=self.text, **self._facts(status))

    def _facts(self, status: wire.ItemStatus) -> dict[str, Any]:
        return {
            "id": self.id,
            "status": status,
            "call_id": self._call_id,
            "name": self._name.name,
            "namespace": self._name.namespace or UNSET,
        }

    def _text(self) -> bytes:
        return b'"name":%b,"arguments":%b' % (_encode(self._name.name), _encode(self.text))


class CustomCallWriter(CallItemWriter):
    kind, text_event = "ctc", b"custom_tool_call_input"

    def __init__(self, index: int, name: ToolName, call_id: str) -> None:
        super().__init__(index, name, call_id)
        self._reading = CustomInput()

    def more(self, arguments: str) -> list[Event]:
        text = self._reading.more(arguments)
        return super().more(text) if text else []

    def is_complete(self) -> bool:
        return is_object(self._reading.arguments)

    def closing(self, status: wire.ItemStatus) -> list[Event]:
        rest, _ = self._reading.finish()
        return [*(super().more(rest) if rest else []), *super().closing(status)]

    def output_item(self, status: wire.ItemStatus) -> wire.OutputCustomCall:
        return wire.OutputCustomCall(input=self.text, **self._facts(status))

    def _text(self) -> bytes:
        return b'"input":' + _encode(self.text)


def call_of(index: int, name: ToolName, piece: ToolCallPiece) -> CallItemWriter:
    kind = CustomCallWriter if name.is_custom else CallItemWriter
    return kind(index, name, piece.id or "")
