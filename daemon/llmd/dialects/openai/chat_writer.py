"""From the parts of answers to the bytes of chat completions, as a whole or as events."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec import UNSET

from ...core.parts import End, Part, ReasoningPart, ToolCallPiece
from ...http import event_stream
from ...http.context import State
from .wire import AssistantMessage, CalledFunction, CalledTool, ChatChoice, ChatCompletion, ChatFinishReason
from .writer import FINISH, AnswerWriter, encode_text, text_of


class ChatWriter(AnswerWriter):
    _id_prefix = "chatcmpl-"
    _chunk_kind = "chat.completion.chunk"
    _whole_kind = ChatCompletion
    _text_opens = b'"delta":{"content":'
    _text_closes = b"}"
    _no_text = b'"delta":{}'

    def __init__(self, state: State, *, is_legacy: bool = False, **others: Any) -> None:
        """`is_legacy`: a call is told as function_call, as it was before there were tools."""
        super().__init__(state, **others)
        self._is_legacy = is_legacy
        self._calling: set[int] = set()
        """Answers that have called something."""

    # --- a whole -----------------------------------------------------------------------------------------------------

    def _whole_choice(self, parts: Sequence[Part], end: End) -> ChatChoice:
        text = text_of(parts)
        reasoning = "".join(part.text for part in parts if isinstance(part, ReasoningPart))
        calls = calls_of(parts)
        if calls:
            self._calling.add(end.index)
        message = AssistantMessage(
            content=text or (None if calls else ""),
            reasoning_content=reasoning or UNSET,
            tool_calls=calls if calls and not self._is_legacy else UNSET,
            function_call=calls[0].function if calls and self._is_legacy else UNSET,
        )
        return ChatChoice(index=end.index, message=message, finish_reason=self._finish_reason(end))

    # --- events ------------------------------------------------------------------------------------------------------

    def opening(self) -> bytes:
        """The role of each answer."""
        super().opening()
        role = b'"delta":{"role":"assistant","content":""},"finish_reason":null}]}' + event_stream.CLOSES
        return b"".join([self._choice(index) + role for index in range(self._n_answers)])

    def _rare_event(self, part: Part) -> bytes:
        if isinstance(part, ReasoningPart):
            return self._delta(part.index, b'{"reasoning_content":%b}' % encode_text(part.text))
        if isinstance(part, ToolCallPiece):
            self._calling.add(part.index)
            if not self._is_legacy:
                return self._delta(part.index, _piece(part))
            return self._delta(part.index, _legacy_piece(part)) if part.call == 0 else b""
        return super()._rare_event(part)

    def _delta(self, index: int, delta: bytes) -> bytes:
        return self._choice(index) + b'"delta":%b,"finish_reason":null}]}' % delta + event_stream.CLOSES

    def _finish_reason(self, end: End) -> ChatFinishReason:
        if end.index in self._calling and end.reason != "length":
            return "function_call" if self._is_legacy else "tool_calls"
        return FINISH[end.reason]


def _legacy_piece(piece: ToolCallPiece) -> bytes:
    return b'{"function_call":%b}' % msgspec.json.encode(_function(piece))


def _piece(piece: ToolCallPiece) -> bytes:
    call: dict[str, object] = {"index": piece.call}
    if piece.name is not None:
        call |= {"id": piece.id, "type": "function"}
    return b'{"tool_calls":[%b]}' % msgspec.json.encode({**call, "function": _function(piece)})


def _function(piece: ToolCallPiece) -> dict[str, str]:
    name = {} if piece.name is None else {"name": piece.name}
    return {**name, "arguments": piece.arguments}


def calls_of(parts: Sequence[Part]) -> list[CalledTool]:
    """Of one answer, in their order."""
    pieces: dict[int, list[ToolCallPiece]] = {}
    for part in parts:
        if isinstance(part, ToolCallPiece):
            pieces.setdefault(part.call, []).append(part)
    return [
        CalledTool(
            id=own[0].id or "",
            function=CalledFunction(own[0].name or "", "".join(piece.arguments for piece in own)),
        )
        for own in pieces.values()
    ]
