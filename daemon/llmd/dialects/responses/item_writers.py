"""Writers of the items of an answer while the answer is generated: each makes its own events, and at the end its
object. Pure.

An event is a name and the members after its sequence number, as JSON without the braces (writer.py).
"""

from __future__ import annotations

import secrets
from abc import ABC, abstractmethod
from collections.abc import Sequence

import msgspec
from msgspec import UNSET

from ...core.parts import TokenProbability, ToolCallPiece
from ...core.tools import is_object
from ..custom_tools import CustomInput
from .items import enclosed
from .tools import ToolName
from .wire.answer import (
    ItemStatus,
    LikelyToken,
    OutputCustomCall,
    OutputFunctionCall,
    OutputItem,
    OutputMessage,
    OutputReasoning,
    OutputText,
    ReasoningText,
    SummaryText,
    TextToken,
)

Event = tuple[bytes, bytes]
_encode = msgspec.json.Encoder().encode


def new_id(kind: str) -> str:
    return f"{kind}_{secrets.token_hex(12)}"


class ItemWriter(ABC):
    """Writes one item: `opening`, then `more` for each piece, then `closing`."""

    kind: str

    def __init__(self, index: int) -> None:
        self.id = new_id(self.kind)
        self._index = b'"output_index":%d' % index
        self._position = b'"item_id":"%b",%b' % (self.id.encode(), self._index)

    def opening(self) -> list[Event]:
        return [self._event(b"response.output_item.added", "in_progress")]

    def closing(self, status: ItemStatus) -> list[Event]:
        return [self._event(b"response.output_item.done", status)]

    @abstractmethod
    def output_item(self, status: ItemStatus) -> OutputItem:
        """Returns the item as it is now."""

    def _event(self, name: bytes, status: ItemStatus) -> Event:
        return name, b'%b,"item":%b' % (self._index, _encode(self.output_item(status)))


class MessageItemWriter(ItemWriter):
    kind = "msg"

    def __init__(self, index: int) -> None:
        super().__init__(index)
        self._texts: list[str] = []
        self._logprobs: list[TextToken] = []
        self._position += b',"content_index":0'

    def opening(self) -> list[Event]:
        part = b'%b,"part":%b' % (self._position, _encode(OutputText(text="")))
        return [*super().opening(), (b"response.content_part.added", part)]

    def more(self, text: str, logprobs: list[TextToken]) -> Event:
        self._texts.append(text)
        self._logprobs += logprobs
        encoded = _encode(logprobs) if logprobs else b"[]"
        return b"response.output_text.delta", b'%b,"delta":%b,"logprobs":%b' % (self._position, _encode(text), encoded)

    def closing(self, status: ItemStatus) -> list[Event]:
        text, logprobs = _encode("".join(self._texts)), _encode(self._logprobs)
        return [
            (b"response.output_text.done", b'%b,"text":%b,"logprobs":%b' % (self._position, text, logprobs)),
            (b"response.content_part.done", b'%b,"part":%b' % (self._position, _encode(self._content()[0]))),
            *super().closing(status),
        ]

    def output_item(self, status: ItemStatus) -> OutputMessage:
        content = self._content() if status != "in_progress" else []
        return OutputMessage(id=self.id, status=status, content=content)

    def _content(self) -> list[OutputText]:
        return [OutputText(text="".join(self._texts), logprobs=self._logprobs)]


class ReasoningItemWriter(ItemWriter):
    """Writes reasoning, as a summary if the request asks for one, else as text."""

    kind = "rs"

    def __init__(self, index: int, *, is_summary: bool, is_enclosed: bool) -> None:
        super().__init__(index)
        self._texts: list[str] = []
        self._is_summary = is_summary
        self._is_enclosed = is_enclosed
        self._names = (b"reasoning_summary_part", b"reasoning_summary_text")
        if not is_summary:
            self._names = (b"content_part", b"reasoning_text")
        self._position += b',"summary_index":0' if is_summary else b',"content_index":0'

    def opening(self) -> list[Event]:
        part = b'%b,"part":%b' % (self._position, self._part(""))
        return [*super().opening(), (b"response.%b.added" % self._names[0], part)]

    def more(self, text: str) -> Event:
        self._texts.append(text)
        return b"response.%b.delta" % self._names[1], b'%b,"delta":%b' % (self._position, _encode(text))

    def closing(self, status: ItemStatus) -> list[Event]:
        text = "".join(self._texts)
        return [
            (b"response.%b.done" % self._names[1], b'%b,"text":%b' % (self._position, _encode(text))),
            (b"response.%b.done" % self._names[0], b'%b,"part":%b' % (self._position, self._part(text))),
            *super().closing(status),
        ]

    def output_item(self, status: ItemStatus) -> OutputReasoning:
        text, is_over = "".join(self._texts), status != "in_progress"
        return OutputReasoning(
            id=self.id,
            status=status,
            summary=[SummaryText(text)] if is_over and self._is_summary else [],
            content=[ReasoningText(text)] if is_over and not self._is_summary else UNSET,
            encrypted_content=enclosed(text) if is_over and self._is_enclosed else UNSET,
        )

    def _part(self, text: str) -> bytes:
        return _encode(SummaryText(text) if self._is_summary else ReasoningText(text))


class CallItemWriter(ItemWriter):
    """The base of function and custom calls."""

    def __init__(self, index: int, name: ToolName, call_id: str) -> None:
        super().__init__(index)
        self._name = name
        self._call_id = call_id

    @abstractmethod
    def more(self, arguments: str) -> Event | None: ...

    @abstractmethod
    def is_complete(self) -> bool:
        """Whether all arguments have arrived."""


class FunctionCallWriter(CallItemWriter):
    kind = "fc"

    def __init__(self, index: int, name: ToolName, call_id: str) -> None:
        super().__init__(index, name, call_id)
        self._arguments: list[str] = []

    def more(self, arguments: str) -> Event:
        self._arguments.append(arguments)
        return b"response.function_call_arguments.delta", b'%b,"delta":%b' % (self._position, _encode(arguments))

    def is_complete(self) -> bool:
        return is_object("".join(self._arguments))

    def closing(self, status: ItemStatus) -> list[Event]:
        members = b'%b,"name":%b,"arguments":%b' % (
            self._position, _encode(self._name.name), _encode("".join(self._arguments)),
        )  # fmt: skip
        return [(b"response.function_call_arguments.done", members), *super().closing(status)]

    def output_item(self, status: ItemStatus) -> OutputFunctionCall:
        return OutputFunctionCall(
            id=self.id,
            status=status,
            call_id=self._call_id,
            name=self._name.name,
            namespace=self._name.namespace or UNSET,
            arguments="".join(self._arguments) if status != "in_progress" else "",
        )


class CustomCallWriter(CallItemWriter):
    kind = "ctc"

    def __init__(self, index: int, name: ToolName, call_id: str) -> None:
        super().__init__(index, name, call_id)
        self._reading = CustomInput()
        self._text = ""

    def more(self, arguments: str) -> Event | None:
        text = self._reading.more(arguments)
        return self._delta(text) if text else None

    def is_complete(self) -> bool:
        return is_object(self._reading.arguments)

    def closing(self, status: ItemStatus) -> list[Event]:
        rest, self._text = self._reading.finish()
        members = b'%b,"input":%b' % (self._position, _encode(self._text))
        done = (b"response.custom_tool_call_input.done", members)
        return [*([self._delta(rest)] if rest else []), done, *super().closing(status)]

    def output_item(self, status: ItemStatus) -> OutputCustomCall:
        return OutputCustomCall(
            id=self.id,
            status=status,
            call_id=self._call_id,
            name=self._name.name,
            namespace=self._name.namespace or UNSET,
            input=self._text,
        )

    def _delta(self, text: str) -> Event:
        return b"response.custom_tool_call_input.delta", b'%b,"delta":%b' % (self._position, _encode(text))


def call_of(index: int, name: ToolName, piece: ToolCallPiece) -> CallItemWriter:
    kind = CustomCallWriter if name.is_custom else FunctionCallWriter
    return kind(index, name, piece.id or new_id("call"))


def chosen_tokens(chosen: Sequence[TokenProbability], likely: Sequence[Sequence[TokenProbability]]) -> list[TextToken]:
    pairs = zip(chosen, likely, strict=True)
    return [TextToken(*_token(one), [LikelyToken(*_token(other)) for other in others]) for one, others in pairs]


def _token(one: TokenProbability) -> tuple[str, list[int], float]:
    return one.text.decode("utf-8", "replace"), list(one.text), one.log_probability
