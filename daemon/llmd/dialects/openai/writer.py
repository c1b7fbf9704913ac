"""Writes answers as OpenAI's completions: as one JSON object, or as a stream of events. This file has the base class of
the writers, and the writer of text completions. The writer of chat completions is in chat_writer.py.
"""

from __future__ import annotations

import secrets
import time
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from ...core.parts import ContentPart, End, EndReason, Failed, Part, ReasoningPart, TextPart, ToolCallPiece
from ...http import framing
from ...http.context import State
from ...http.envelope import OWN
from ...http.stream import Writer
from .details_writer import DetailsWriter, usage_of
from .wire import answer as wire

ENVELOPE = OWN
"""llmd's own endpoints report errors in the format of OpenAI's APIs."""
_DONE = framing.event(b"[DONE]")
FINISH: dict[EndReason, wire.FinishReason] = {"end": "stop", "stop": "stop", "length": "length"}
Members = Mapping[str, Any]
_NONE: Members = {}
encode_text = msgspec.json.Encoder().encode


class AnswerWriter(Writer):
    """The base class of the writers of chat and text completions. In events that have only text, everything except the
    text is encoded only once, so such an event is cheap.
    """

    _id_prefix: str
    _chunk_kind: str
    _complete_kind: type[wire.ChatCompletion] | type[wire.Completion]
    _content_name: str
    """The member of a choice that has the content, in events."""

    def __init__(
        self,
        state: State,
        *,
        n_answers: int,
        include_usage: bool,
        n_prompts: int = 1,
        has_running_usage: bool = False,
        has_timings: bool = False,
    ) -> None:
        """If `include_usage` is true, a stream ends with the number of used tokens. If `has_running_usage` is true,
        every event with text has the number of tokens used so far.
        """
        self._facts: dict[str, Any] = {
            "id": self._id_prefix + secrets.token_hex(12),
            "created": int(time.time()),
            "model": state.model_id,
            "system_fingerprint": state.fingerprint,
        }
        self._n_answers = n_answers
        self._n_each = n_answers // n_prompts
        is_chat = self._complete_kind is wire.ChatCompletion
        self._details = DetailsWriter(is_chat=is_chat, has_timings=has_timings, has_running_usage=has_running_usage)
        self._include_usage = include_usage
        self._ends: list[End] = []
        self._head = b""
        """The beginning of every event, up to the choices."""
        self._frames: dict[int, tuple[bytes, bytes]] = {}
        """For each answer, by its index, the bytes before and after the text in an event that has only text."""

    def complete(self, parts: Sequence[Part]) -> bytes:
        ends = ends_of(parts)
        by_answer: dict[int, list[Part]] = {}
        for part in parts:
            by_answer.setdefault(part.index, []).append(part)
        choices: list[Any] = [
            msgspec.structs.replace(self._complete_choice(own, end), **self._details.of_choice(own))
            for end in ends
            if (own := by_answer[end.index])
        ]
        prompt_tokens = self._details.of_event(parts[0])  # requested prompt tokens are always the first part
        facts = {**prompt_tokens, **self._facts, **self._of_request(ends)}
        return msgspec.json.encode(self._complete_kind(choices=choices, **facts))

    @abstractmethod
    def _complete_choice(self, parts: Sequence[Part], end: End) -> wire.ChatChoice | wire.CompletionChoice:
        """Returns the choice for one answer, without its details. `parts` are the parts of this answer."""

    # --- events ------------------------------------------------------------------------------------------------------

    def opening(self) -> bytes:
        facts = {"id": self._facts["id"], "object": self._chunk_kind, **self._facts}
        self._head = framing.OPENS + msgspec.json.encode(facts)[:-1] + b","
        return b""

    def events(self, parts: Sequence[Part]) -> bytes:
        if len(parts) == 1:  # by far the most frequent case
            return self._event(parts[0])
        return b"".join(map(self._event, parts))

    def _event(self, part: Part) -> bytes:
        if type(part) is TextPart and part.details is None:
            opens, closes = self._frames.get(part.index) or self._frame(part.index)
            return opens + encode_text(part.text) + closes
        if isinstance(part, End):
            return self._finish(part)
        if isinstance(part, Failed):
            return ENVELOPE.event(part.error)
        if isinstance(part, ContentPart) and part.details is None:
            return self._chunk(part.index, self._content(part))
        choice, members = self._details.of_choice([part]), self._details.of_event(part)
        return self._chunk(part.index, self._content(part), choice, members)

    @abstractmethod
    def _content(self, part: Part) -> dict[str, Any] | str:
        """Returns the content of the event for this part, or an empty value if the part has no content."""

    def _frame(self, index: int) -> tuple[bytes, bytes]:
        opens, _, closes = self._chunk(index, self._content(TextPart(index, "text"))).rpartition(b'"text"')
        frame = self._frames[index] = opens, closes
        return frame

    def _chunk(self, index: int, content: Any, choice: Members = _NONE, members: Members = _NONE) -> bytes:
        """Returns the event with this content of an answer. `choice` are further members of the event's choice, and
        `members` further members of the event itself. Returns b"" if the event would report nothing.
        """
        if not (content or choice or members):
            return b""
        finish = {"finish_reason": None} if "finish_reason" not in choice else {}
        return self._framed([{"index": index, self._content_name: content, **choice, **finish}], members)

    def _framed(self, choices: Sequence[Members], members: Members) -> bytes:
        return self._head + msgspec.json.encode({"choices": choices, **members})[1:] + framing.CLOSES

    def _finish(self, end: End) -> bytes:
        self._ends.append(end)
        members = self._details.of_end(end)
        if not self._include_usage:
            members |= {"session": end.session, **self._details.of_request(end)}
        return self._chunk(end.index, self._content(end), {"finish_reason": self._finish_reason(end)}, members)

    def _finish_reason(self, end: End) -> str:
        return FINISH[end.reason]

    def ending(self) -> bytes:
        if not self._include_usage or not self._ends:
            return _DONE
        return self._framed([], self._of_request(ends_of(self._ends))) + _DONE

    def _of_request(self, ends: Sequence[End]) -> dict[str, Any]:
        usage = usage_of(ends, self._n_each)
        return {"usage": usage, "session": ends[0].session, **self._details.of_request(ends[0])}


class CompletionWriter(AnswerWriter):
    _id_prefix = "cmpl-"
    _chunk_kind = "text_completion"
    _complete_kind = wire.Completion
    _content_name = "text"

    def _content(self, part: Part) -> str:
        if isinstance(part, ReasoningPart | ToolCallPiece):
            raise TypeError(f"{type(part).__name__}: no request of this dialect can ask for it")
        return part.text if isinstance(part, TextPart) else ""

    def _complete_choice(self, parts: Sequence[Part], end: End) -> wire.CompletionChoice:
        return wire.CompletionChoice(index=end.index, text=text_of(parts), finish_reason=FINISH[end.reason])


def ends_of(parts: Sequence[Part]) -> list[End]:
    return sorted((part for part in parts if isinstance(part, End)), key=lambda end: end.index)


def text_of(parts: Sequence[Part]) -> str:
    return "".join(part.text for part in parts if isinstance(part, TextPart))
