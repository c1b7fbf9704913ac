"""Writes the parts of an answer in the form of /api/chat or /api/generate: as one JSON object, or as a stream of
lines.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, Literal

import msgspec

from ...core.errors import ApiError
from ...core.parts import End, EndReason, Failed, LogProbabilities, Part, ReasoningPart, TextPart, ToolCallPiece
from ...http import framing
from ...http.context import State
from ...http.envelope import Envelope
from ...http.stream import Writer
from ..arguments import object_of, text_of
from ..probabilities import chosen_tokens
from . import wire

DoneReason = Literal["stop", "length"]
_DONE: dict[EndReason, DoneReason] = {"end": "stop", "stop": "stop", "length": "length"}
_NS_PER_MS = 1_000_000
_OPEN = b',"done":false}' + framing.LINE_CLOSES
"""The end of every line except the last."""
_encode = msgspec.json.Encoder().encode


def _error(error: ApiError) -> bytes:
    return msgspec.json.encode(wire.OllamaError(error.message, error.code, error.param))


ENVELOPE = Envelope(wire.OllamaError, _error)


def stamp(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat().replace("+00:00", "Z")


def facts_of(state: State) -> dict[str, Any]:
    """Returns the model's name, and the time at which the answer began."""
    return {"model": state.model_id, "created_at": datetime.now(UTC).isoformat().replace("+00:00", "Z")}


class _Calls:
    """Collects the pieces of tool calls, because Ollama's API returns only complete calls."""

    def __init__(self) -> None:
        self._open: ToolCallPiece | None = None
        self._arguments: list[str] = []

    def add(self, piece: ToolCallPiece) -> list[wire.ToolCallMade | str]:
        """Adds a piece. If the piece begins a new call, returns the previous call, which is then complete."""
        done = self.close(is_cut=True) if self._open is not None and piece.call != self._open.call else []
        if self._open is None:
            self._open = piece
        self._arguments.append(piece.arguments)
        return done

    def close(self, *, is_cut: bool = False) -> list[wire.ToolCallMade | str]:
        """Returns the last call. If its arguments are not a JSON object, returns a text with its name and arguments
        instead. Line breaks between the arguments, which some models write, are removed, because a line break ends a
        message of this stream.
        """
        if self._open is None:
            return []
        piece, arguments = self._open, "".join(self._arguments)
        self._open, self._arguments = None, []
        on_one_line = object_of(arguments, is_cut=is_cut)
        if on_one_line is None:
            return [text_of(piece.name or "", arguments.strip())]
        function = wire.ToolCallFunction(piece.call, piece.name or "", msgspec.Raw(on_one_line))
        return [wire.ToolCallMade(function, piece.id or "")]


class _OllamaWriter(Writer):
    """The common base of the writers of /api/chat and /api/generate. What is the same in every line is encoded only
    once.
    """

    framing = framing.LINES
    _text_opens: bytes
    """The bytes of a line between the facts (`facts_of`) and the text."""
    _thinking_opens: bytes
    _closes: bytes

    def __init__(self, state: State) -> None:
        self._facts: dict[str, Any] = facts_of(state)
        self._head = msgspec.json.encode(self._facts)[:-1]
        self._tail = self._closes + _OPEN
        self._calls = _Calls()

    def complete(self, parts: Sequence[Part]) -> bytes:
        text = "".join(part.text for part in parts if isinstance(part, TextPart))
        thinking = "".join(part.text for part in parts if isinstance(part, ReasoningPart))
        made = [one for part in parts if isinstance(part, ToolCallPiece) for one in self._calls.add(part)]
        end = next(part for part in parts if isinstance(part, End))
        made += self._calls.close(is_cut=end.is_cut)
        text += "".join(one for one in made if isinstance(one, str))
        calls = [one for one in made if not isinstance(one, str)]
        logprobs = chosen_tokens(part for part in parts if isinstance(part, LogProbabilities))
        return _encode(self._answer(text, thinking, calls, {**self._facts, **measures_of(end), "logprobs": logprobs}))

    @abstractmethod
    def _answer(
        self, text: str, thinking: str, calls: list[wire.ToolCallMade], facts: dict[str, Any]
    ) -> wire.OllamaChat | wire.OllamaGenerated: ...

    # --- lines -------------------------------------------------------------------------------------------------------

    def events(self, parts: Sequence[Part]) -> bytes:
        """Returns the lines for these parts. Log probabilities are added to the line of the text to which they belong,
        which is the line before.
        """
        lines: list[bytes] = []
        for part in parts:
            if not isinstance(part, LogProbabilities):
                lines.append(self._lines(part))
                continue
            line = lines.pop() if lines and lines[-1].endswith(self._tail) else self._lines(TextPart(part.index, ""))
            logprobs = b',"logprobs":' + _encode(chosen_tokens([part]))
            lines.append(line.removesuffix(_OPEN) + logprobs + _OPEN)
        return b"".join(lines)

    def _lines(self, part: Part) -> bytes:
        if type(part) is TextPart:
            return self._head + self._text_opens + _encode(part.text) + self._tail
        if isinstance(part, ReasoningPart):
            return self._head + self._thinking_opens + _encode(part.text) + self._tail
        if isinstance(part, ToolCallPiece):
            return self._called(self._calls.add(part))
        if isinstance(part, End):
            end = self._answer("", "", [], {**self._facts, **measures_of(part)})
            return self._called(self._calls.close(is_cut=part.is_cut)) + msgspec.json.encode(end) + framing.LINE_CLOSES
        if isinstance(part, Failed):
            return ENVELOPE.body(part.error) + framing.LINE_CLOSES
        raise TypeError(f"{type(part).__name__}: no request of this dialect can ask for it")

    def _called(self, made: list[wire.ToolCallMade | str]) -> bytes:
        lines = []
        for one in made:
            text, calls = (one, []) if isinstance(one, str) else ("", [one])
            answer = self._answer(text, "", calls, {**self._facts, "done": False})
            lines.append(msgspec.json.encode(answer) + framing.LINE_CLOSES)
        return b"".join(lines)


class OllamaChatWriter(_OllamaWriter):
    _text_opens = b',"message":{"role":"assistant","content":'
    _thinking_opens = b',"message":{"role":"assistant","content":"","thinking":'
    _closes = b"}"

    def _answer(
        self, text: str, thinking: str, calls: list[wire.ToolCallMade], facts: dict[str, Any]
    ) -> wire.OllamaChat:
        message = wire.OllamaAnswerMessage(role="assistant", content=text, thinking=thinking, tool_calls=calls)
        return wire.OllamaChat(message=message, **facts)


class GenerateWriter(_OllamaWriter):
    _text_opens = b',"response":'
    _thinking_opens = b',"response":"","thinking":'
    _closes = b""

    def _answer(
        self, text: str, thinking: str, calls: list[wire.ToolCallMade], facts: dict[str, Any]
    ) -> wire.OllamaGenerated:
        assert not calls, "only chats have tools"
        return wire.OllamaGenerated(response=text, thinking=thinking, **facts)


def measures_of(end: End) -> dict[str, Any]:
    session, usage = end.session, end.usage
    times = session.queue_ms, session.prefill_ms, session.decode_ms
    queue, prefill, decode = (max(1, round(_NS_PER_MS * ms)) for ms in times)  # clients divide by these times
    return {
        "done": True,
        "done_reason": _DONE[end.reason],
        "total_duration": queue + prefill + decode,
        "load_duration": queue,
        "prompt_eval_count": usage.n_prompt,
        "prompt_eval_duration": prefill,
        "eval_count": usage.n_generated,
        "eval_duration": decode,
    }
