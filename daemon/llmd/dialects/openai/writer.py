"""Writes the parts of answers as OpenAI's completions, complete or as events: the base class of both writers, and the
writer of text completions. The writer of chat completions is in chat_writer.py.
"""

from __future__ import annotations

import secrets
import time
from abc import abstractmethod
from collections.abc import Sequence
from typing import Any

import msgspec

from ...core.parts import End, EndReason, Failed, Part, TextPart
from ...http import framing
from ...http.context import State
from ...http.envelope import OWN
from ...http.stream import Writer
from .details_writer import DETAIL_PARTS, OPEN, DetailsWriter, usage_of
from .wire import answer as wire

ENVELOPE = OWN
"""OpenAI's error envelope is also that of llmd's own endpoints."""
_DONE = framing.event(b"[DONE]")
FINISH: dict[EndReason, wire.FinishReason] = {"end": "stop", "stop": "stop", "length": "length"}
encode_text = msgspec.json.Encoder().encode


class AnswerWriter(Writer):
    """The base class of the writers of chat and text completions. Everything in an event except the text is encoded
    once, so that a token costs one small join.
    """

    _id_prefix: str
    _chunk_kind: str
    _complete_kind: type[wire.ChatCompletion] | type[wire.Completion]
    _text_opens: bytes
    """The bytes of a choice between the index and the text."""
    _text_closes: bytes
    _no_text: bytes

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
        self._heads: dict[int, bytes] = {}
        """The beginning of every event with text, by the index of the answer."""
        self._tail = self._text_closes + OPEN

    def complete(self, parts: Sequence[Part]) -> bytes:
        ends = ends_of(parts)
        by_answer: dict[int, list[Part]] = {}
        for part in parts:
            by_answer.setdefault(part.index, []).append(part)
        choices: list[Any] = [
            msgspec.structs.replace(self._complete_choice(own, end), **self._details.choice(own))
            for end in ends
            if (own := by_answer[end.index])
        ]
        facts = {"usage": usage_of(ends, self._n_each), "session": ends[0].session, **self._facts}
        return msgspec.json.encode(self._complete_kind(choices=choices, **facts, **self._details.members(parts, ends)))

    @abstractmethod
    def _complete_choice(self, parts: Sequence[Part], end: End) -> wire.ChatChoice | wire.CompletionChoice:
        """Returns the choice of one answer. `parts` are the parts of that answer."""

    # --- events ------------------------------------------------------------------------------------------------------

    def opening(self) -> bytes:
        facts = {"id": self._facts["id"], "object": self._chunk_kind, **self._facts}
        self._head = framing.OPENS + msgspec.json.encode(facts)[:-1]
        return b""

    def events(self, parts: Sequence[Part]) -> bytes:
        if len(parts) == 1:  # by far the most frequent case
            return self._event(parts[0])
        return self._details.events(parts, self._event, self._without_text)

    def _event(self, part: Part) -> bytes:
        if type(part) is TextPart:
            head = self._heads.get(part.index) or self._text_head(part.index)
            return head + encode_text(part.text) + self._tail
        if isinstance(part, End):
            return self._finish(part)
        if isinstance(part, Failed):
            return framing.event(ENVELOPE.body(part.error))
        if isinstance(part, DETAIL_PARTS):
            return self._details.events([part], self._event, self._without_text)
        return self._rare_event(part)

    def _rare_event(self, part: Part) -> bytes:
        raise TypeError(f"{type(part).__name__}: no request of this dialect can ask for it")

    def _text_head(self, index: int) -> bytes:
        head = self._heads[index] = self._choice(index) + self._text_opens
        return head

    def _without_text(self, index: int) -> bytes:
        return self._choice(index) + self._no_text + OPEN

    def _choice(self, index: int) -> bytes:
        return self._head + b',"choices":[{"index":%d,' % index

    def _finish(self, end: End) -> bytes:
        self._ends.append(end)
        reason = b',"finish_reason":"%b"}]' % self._finish_reason(end).encode()
        members = self._details.finish(end)
        if not self._include_usage:
            members += b',"session":' + msgspec.json.encode(end.session) + self._details.ending(end)
        return self._choice(end.index) + self._no_text + reason + members + b"}" + framing.CLOSES

    def _finish_reason(self, end: End) -> str:
        return FINISH[end.reason]

    def ending(self) -> bytes:
        if not self._include_usage or not self._ends:
            return _DONE
        ends = ends_of(self._ends)
        usage, session = msgspec.json.encode(usage_of(ends, self._n_each)), msgspec.json.encode(ends[0].session)
        members = usage, session, self._details.ending(ends[0])
        return self._head + b',"choices":[],"usage":%b,"session":%b%b}' % members + framing.CLOSES + _DONE


class CompletionWriter(AnswerWriter):
    _id_prefix = "cmpl-"
    _chunk_kind = "text_completion"
    _complete_kind = wire.Completion
    _text_opens = b'"text":'
    _text_closes = b""
    _no_text = b'"text":""'

    def _complete_choice(self, parts: Sequence[Part], end: End) -> wire.CompletionChoice:
        return wire.CompletionChoice(index=end.index, text=text_of(parts), finish_reason=FINISH[end.reason])


def ends_of(parts: Sequence[Part]) -> list[End]:
    return sorted((part for part in parts if isinstance(part, End)), key=lambda end: end.index)


def text_of(parts: Sequence[Part]) -> str:
    return "".join(part.text for part in parts if isinstance(part, TextPart))
