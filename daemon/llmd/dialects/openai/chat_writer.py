"""Writes the parts of answers as chat completions, complete or as events."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from msgspec import UNSET

from ...core.parts import End, Part, ReasoningPart, ToolCallPiece
from ...http import framing
from ...http.context import State
from ..custom_tools import CustomInput
from .wire import answer as wire
from .writer import FINISH, AnswerWriter, encode_text, text_of


class ChatWriter(AnswerWriter):
    _id_prefix = "chatcmpl-"
    _chunk_kind = "chat.completion.chunk"
    _complete_kind = wire.ChatCompletion
    _text_opens = b'"delta":{"content":'
    _text_closes = b"}"
    _no_text = b'"delta":{}'

    def __init__(
        self, state: State, *, is_legacy: bool = False, customs: frozenset[str] = frozenset(), **others: Any
    ) -> None:
        """If `is_legacy` is true, calls are returned as function_call, the form of the old functions API. `customs` are
        the names of custom tools.
        """
        super().__init__(state, **others)
        self._is_legacy = is_legacy
        self._customs = customs
        self._inputs: dict[int, dict[int, CustomInput]] = {}
        """The inputs of custom calls in progress, by the index of the answer and the number of the call."""
        self._calling: set[int] = set()
        """Indexes of answers that have a call."""

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
        """Returns one event for each answer, which has the role."""
        super().opening()
        role = b'"delta":{"role":"assistant","content":""},"finish_reason":null}]}' + framing.CLOSES
        return b"".join([self._choice(index) + role for index in range(self._n_answers)])

    def _rare_event(self, part: Part) -> bytes:
        if isinstance(part, ReasoningPart):
            return self._delta(part.index, b'{"reasoning_content":%b}' % encode_text(part.text))
        if isinstance(part, ToolCallPiece):
            self._calling.add(part.index)
            if self._is_legacy:
                delta = b'{"function_call":%b}' % msgspec.json.encode(_function(part))
                return self._delta(part.index, delta) if part.call == 0 else b""
            inputs = self._inputs.setdefault(part.index, {})
            if part.name in self._customs:
                inputs[part.call] = CustomInput()
            reading = inputs.get(part.call)
            return self._delta(part.index, _piece(part)) if reading is None else self._custom_piece(part, reading)
        return super()._rare_event(part)

    def _custom_piece(self, piece: ToolCallPiece, reading: CustomInput) -> bytes:
        text = reading.more(piece.arguments)
        if piece.name is None:
            return self._delta(piece.index, _input(piece.call, text)) if text else b""
        opens = {"index": piece.call, "id": piece.id, "type": "custom", "custom": {"name": piece.name, "input": text}}
        return self._delta(piece.index, _calls(opens))

    def _finish(self, end: End) -> bytes:
        """Returns events with the rest of each custom call's input, and then the answer's last event."""
        rests = [(call, reading.finish()[0]) for call, reading in self._inputs.pop(end.index, {}).items()]
        events = [self._delta(end.index, _input(call, text)) for call, text in rests if text]
        return b"".join(events) + super()._finish(end)

    def _delta(self, index: int, delta: bytes) -> bytes:
        return self._choice(index) + b'"delta":%b,"finish_reason":null}]}' % delta + framing.CLOSES

    def _finish_reason(self, end: End) -> wire.ChatFinishReason:
        if end.index in self._calling and end.reason != "length" and not end.has_broken_call:
            return "function_call" if self._is_legacy else "tool_calls"
        return FINISH[end.reason]


def _piece(piece: ToolCallPiece) -> bytes:
    call: dict[str, object] = {"index": piece.call}
    if piece.name is not None:
        call |= {"id": piece.id, "type": "function"}
    return _calls({**call, "function": _function(piece)})


def _input(call: int, text: str) -> bytes:
    return _calls({"index": call, "custom": {"input": text}})


def _calls(call: Mapping[str, object]) -> bytes:
    return b'{"tool_calls":[%b]}' % msgspec.json.encode(call)


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
