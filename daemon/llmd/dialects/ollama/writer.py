"""Writes an answer in the format of /api/chat or /api/generate: as one JSON object, or as a stream of lines."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, Literal

import msgspec

from ...core.errors import ApiError
from ...core.parts import (
    Details,
    End,
    EndReason,
    Failed,
    Part,
    Progress,
    ReasoningPart,
    TextPart,
    ToolCallPiece,
    details_of,
)
from ...http import framing
from ...http.context import State
from ...http.envelope import Envelope
from ...http.stream import Writer
from ..arguments import object_of, text_of
from ..probabilities import chosen_tokens
from ..timings import progress_at
from . import wire

DoneReason = Literal["stop", "length"]
_DONE: dict[EndReason, DoneReason] = {"end": "stop", "stop": "stop", "length": "length"}
_NS_PER_MS = 1_000_000
_OPEN = b',"done":false}' + framing.LINE_CLOSES
"""The end of every line except the last."""
_encode = msgspec.json.Encoder().encode


def _error(error: ApiError) -> bytes:
    return msgspec.json.encode(wire.OllamaError(error.message, error.code, error.param))


ENVELOPE = Envelope(wire.OllamaError, _error, lambda error: framing.LINES.frame(_error(error)))


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
        instead. Some models write line breaks between the arguments. llmd removes these line breaks, because each line
        of the stream must be a complete JSON object.
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
    """The common base of the writers of /api/chat and /api/generate. The members that all lines have in common are
    encoded only once.
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
        logprobs = chosen_tokens(details_of(parts).log_probabilities)
        return _encode(self._answer(text, thinking, calls, {**self._facts, **measures_of(end), "logprobs": logprobs}))

    @abstractmethod
    def _answer(
        self, text: str, thinking: str, calls: list[wire.ToolCallMade], facts: dict[str, Any]
    ) -> wire.OllamaChat | wire.OllamaGenerated: ...

    # --- lines -------------------------------------------------------------------------------------------------------

    def events(self, parts: Sequence[Part]) -> bytes:
        return b"".join(map(self._lines, parts))

    def _lines(self, part: Part) -> bytes:
        if type(part) is TextPart and part.details is None:  # by far the most frequent case
            return self._head + self._text_opens + _encode(part.text) + self._tail
        if isinstance(part, TextPart):
            return self._text_line(self._text_opens, part.text, part.details)
        if isinstance(part, ReasoningPart):
            return self._text_line(self._thinking_opens, part.text, part.details)
        # The logprobs of a tool call are sent at once, but the call itself only when it is complete.
        if isinstance(part, ToolCallPiece):
            logprobs = self._text_line(self._text_opens, "", part.details) if part.details is not None else b""
            return self._called(self._calls.add(part)) + logprobs
        if isinstance(part, End):
            return self._called(self._calls.close(is_cut=part.is_cut)) + self._line(**measures_of(part))
        if isinstance(part, Progress):
            return self._line(prompt_progress=progress_at(part))
        if isinstance(part, Failed):
            return ENVELOPE.event(part.error)
        raise TypeError(f"{type(part).__name__}: no request of this dialect can ask for it")

    def _text_line(self, opens: bytes, text: str, details: Details | None) -> bytes:
        logprobs = b',"logprobs":' + _encode(chosen_tokens(details.log_probabilities)) if details is not None else b""
        return self._head + opens + _encode(text) + self._closes + logprobs + _OPEN

    def _called(self, made: list[wire.ToolCallMade | str]) -> bytes:
        return b"".join([self._line(one) if isinstance(one, str) else self._line(calls=[one]) for one in made])

    def _line(self, text: str = "", thinking: str = "", calls: Sequence[wire.ToolCallMade] = (), **facts: Any) -> bytes:
        answer = self._answer(text, thinking, list(calls), {**self._facts, "done": False, **facts})
        return msgspec.json.encode(answer) + framing.LINE_CLOSES


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
    # Each time is at least 1, because clients divide by it.
    queue, prefill, decode = (max(1, round(_NS_PER_MS * ms)) for ms in times)
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
