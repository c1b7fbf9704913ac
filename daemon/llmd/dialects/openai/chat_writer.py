"""Writes answers as chat completions: as one JSON object, or as a stream of events."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from msgspec import UNSET

from ...core.parts import End, Part, ReasoningPart, TextPart, ToolCallPiece
from ...http.context import State
from ..custom_tools import CustomInput
from .wire import answer as wire
from .writer import FINISH, AnswerWriter, text_of


class ChatWriter(AnswerWriter):
    _id_prefix = "chatcmpl-"
    _chunk_kind = "chat.completion.chunk"
    _complete_kind = wire.ChatCompletion
    _content_name = "delta"

    def __init__(
        self, state: State, *, is_legacy: bool = False, customs: frozenset[str] = frozenset(), **others: Any
    ) -> None:
        """If `is_legacy` is true, a tool call is returned as function_call, as in the old functions API. `customs` are
        the names of custom tools.
        """
        super().__init__(state, **others)
        self._is_legacy = is_legacy
        self._customs = customs
        self._inputs: dict[int, dict[int, CustomInput]] = {}
        """The inputs of the calls of custom tools, by the index of the answer and the number of the call. The inputs of
        an answer are dropped when the answer ends.
        """
        self._calling: set[int] = set()
        """Indexes of the answers that have a tool call."""

    # --- a complete answer -------------------------------------------------------------------------------------------

    def _complete_choice(self, parts: Sequence[Part], end: End) -> wire.ChatChoice:
        text = text_of(parts)
        reasoning = "".join(part.text for part in parts if isinstance(part, ReasoningPart))
        calls = calls_of(parts, self._customs)
        if calls:
            self._calling.add(end.index)
        message = wire.AssistantMessage(
            content=text or (None if calls else ""),
            reasoning_content=reasoning or UNSET,
            tool_calls=calls if calls and not self._is_legacy else UNSET,
            function_call=calls[0].function if calls and self._is_legacy else UNSET,
        )
        return wire.ChatChoice(index=end.index, message=message, finish_reason=self._finish_reason(end))

    # --- events ------------------------------------------------------------------------------------------------------

    def opening(self) -> bytes:
        """Returns one event for each answer. The event has only the role."""
        super().opening()
        return b"".join([self._chunk(index, {"role": "assistant", "content": ""}) for index in range(self._n_answers)])

    def _content(self, part: Part) -> dict[str, Any]:
        if isinstance(part, TextPart):
            return {"content": part.text} if part.text else {}
        if isinstance(part, ReasoningPart):
            return {"reasoning_content": part.text}
        if not isinstance(part, ToolCallPiece):
            return {}
        self._calling.add(part.index)
        if self._is_legacy:
            return {"function_call": _function(part)} if part.call == 0 else {}
        inputs = self._inputs.setdefault(part.index, {})
        if part.name in self._customs:
            inputs[part.call] = CustomInput()
        reading = inputs.get(part.call)
        return _piece(part) if reading is None else _custom_piece(part, reading.more(part.arguments))

    def _finish(self, end: End) -> bytes:
        """Returns the last events of an answer. The rest of the input of each call of a custom tool comes first, then
        the end of the answer.
        """
        rests = [(call, reading.finish()[0]) for call, reading in self._inputs.pop(end.index, {}).items()]
        events = [self._chunk(end.index, _input(call, text)) for call, text in rests]
        return b"".join(events) + super()._finish(end)

    def _finish_reason(self, end: End) -> wire.ChatFinishReason:
        if end.index in self._calling and end.reason != "length" and not end.has_broken_call:
            return "function_call" if self._is_legacy else "tool_calls"
        return FINISH[end.reason]


def _piece(piece: ToolCallPiece) -> dict[str, Any]:
    opens = {} if piece.name is None else {"id": piece.id, "type": "function"}
    return {"tool_calls": [{"index": piece.call, **opens, "function": _function(piece)}]}


def _custom_piece(piece: ToolCallPiece, text: str) -> dict[str, Any]:
    if piece.name is None:
        return _input(piece.call, text)
    custom = {"name": piece.name, "input": text}
    return {"tool_calls": [{"index": piece.call, "id": piece.id, "type": "custom", "custom": custom}]}


def _input(call: int, text: str) -> dict[str, Any]:
    return {"tool_calls": [{"index": call, "custom": {"input": text}}]} if text else {}


def _function(piece: ToolCallPiece) -> dict[str, str]:
    name = {} if piece.name is None else {"name": piece.name}
    return {**name, "arguments": piece.arguments}


def calls_of(parts: Sequence[Part], customs: frozenset[str]) -> list[wire.CalledTool]:
    pieces: dict[int, list[ToolCallPiece]] = {}
    for part in parts:
        if isinstance(part, ToolCallPiece):
            pieces.setdefault(part.call, []).append(part)
    return [
        _called(own[0].id or "", own[0].name or "", "".join(piece.arguments for piece in own), customs)
        for own in pieces.values()
    ]


def _called(id: str, name: str, arguments: str, customs: frozenset[str]) -> wire.CalledTool:
    if name not in customs:
        return wire.CalledTool(id=id, function=wire.CalledFunction(name, arguments))
    reading = CustomInput()
    reading.more(arguments)
    return wire.CalledTool(id=id, type="custom", custom=wire.CalledCustom(name, reading.finish()[1]))
