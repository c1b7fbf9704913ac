"""From the parts of answers to OpenAI's bytes, as a whole or as events: what a chat's (chat_writer.py) and a text
completion's share, and the latter."""

from __future__ import annotations

import secrets
import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

import msgspec

from ...core.parts import End, EndReason, Failed, Part, TextPart
from ...http import event_stream
from ...http.context import State
from ...http.envelope import OWN
from .wire import (
    ChatChoice,
    ChatCompletion,
    Completion,
    CompletionChoice,
    CompletionTokensDetails,
    FinishReason,
    PromptTokensDetails,
    Usage,
)

ENVELOPE = OWN
"""What is nobody's else speaks this dialect, too."""
_DONE = event_stream.event(b"[DONE]")
FINISH: dict[EndReason, FinishReason] = {"end": "stop", "stop": "stop", "length": "length"}
encode_text = msgspec.json.Encoder().encode


class AnswerWriter(ABC):
    """What both kinds of completion share. All of an event but its text is encoded once, so that a token costs
    one small join."""

    _id_prefix: str
    _chunk_kind: str
    _whole_kind: type[ChatCompletion] | type[Completion]
    _text_opens: bytes
    """Of a choice, from its index to its text."""
    _text_closes: bytes
    _no_text: bytes

    def __init__(self, state: State, *, n_answers: int, include_usage: bool) -> None:
        """`include_usage`: a stream ends with the tokens that were used."""
        self._facts: dict[str, Any] = {
            "id": self._id_prefix + secrets.token_hex(12),
            "created": int(time.time()),
            "model": state.model_id,
            "system_fingerprint": state.fingerprint,
        }
        self._n_answers = n_answers
        self._include_usage = include_usage
        self._ends: list[End] = []
        self._head = b""
        """Of every event, as far as its choices."""
        self._heads: dict[int, bytes] = {}
        """Of events with text, by the answer's index."""
        self._tail = self._text_closes + b',"finish_reason":null}]}' + event_stream.CLOSES

    def whole(self, parts: Sequence[Part]) -> bytes:
        ends = ends_of(parts)
        choices: list[Any] = [
            self._whole_choice([part for part in parts if part.index == end.index], end) for end in ends
        ]
        facts = {"usage": usage_of(ends), "session": ends[0].session, **self._facts}
        return msgspec.json.encode(self._whole_kind(choices=choices, **facts))

    @abstractmethod
    def _whole_choice(self, parts: Sequence[Part], end: End) -> ChatChoice | CompletionChoice:
        """`parts`: of this answer."""

    # --- events ------------------------------------------------------------------------------------------------------

    def opening(self) -> bytes:
        facts = {"id": self._facts["id"], "object": self._chunk_kind, **self._facts}
        self._head = event_stream.OPENS + msgspec.json.encode(facts)[:-1]
        return b""

    def events(self, parts: Sequence[Part]) -> bytes:
        if len(parts) == 1:  # nearly always
            return self._event(parts[0])
        return b"".join(map(self._event, parts))

    def _event(self, part: Part) -> bytes:
        if type(part) is TextPart:
            head = self._heads.get(part.index) or self._text_head(part.index)
            return head + encode_text(part.text) + self._tail
        if isinstance(part, End):
            return self._finish(part)
        if isinstance(part, Failed):
            return event_stream.event(ENVELOPE.body(part.error))
        return self._rare_event(part)

    def _rare_event(self, part: Part) -> bytes:
        raise TypeError(f"{type(part).__name__}: nobody can have asked for it")

    def _text_head(self, index: int) -> bytes:
        head = self._heads[index] = self._choice(index) + self._text_opens
        return head

    def _choice(self, index: int) -> bytes:
        return self._head + b',"choices":[{"index":%d,' % index

    def _finish(self, end: End) -> bytes:
        self._ends.append(end)
        reason = b',"finish_reason":"%b"}]' % self._finish_reason(end).encode()
        session = b"" if self._include_usage else b',"session":' + msgspec.json.encode(end.session)
        return self._choice(end.index) + self._no_text + reason + session + b"}" + event_stream.CLOSES

    def _finish_reason(self, end: End) -> str:
        return FINISH[end.reason]

    def ending(self) -> bytes:
        if not self._include_usage or not self._ends:
            return _DONE
        ends = ends_of(self._ends)
        told = msgspec.json.encode(usage_of(ends)), msgspec.json.encode(ends[0].session)
        return self._head + b',"choices":[],"usage":%b,"session":%b}' % told + event_stream.CLOSES + _DONE


class CompletionWriter(AnswerWriter):
    _id_prefix = "cmpl-"
    _chunk_kind = "text_completion"
    _whole_kind = Completion
    _text_opens = b'"text":'
    _text_closes = b""
    _no_text = b'"text":""'

    def _whole_choice(self, parts: Sequence[Part], end: End) -> CompletionChoice:
        return CompletionChoice(index=end.index, text=text_of(parts), finish_reason=FINISH[end.reason])


def ends_of(parts: Sequence[Part]) -> list[End]:
    """In the order of the answers."""
    return sorted((part for part in parts if isinstance(part, End)), key=lambda end: end.index)


def text_of(parts: Sequence[Part]) -> str:
    """Of one answer."""
    return "".join(part.text for part in parts if isinstance(part, TextPart))


def usage_of(ends: Sequence[End]) -> Usage:
    """Of all answers to one prompt."""
    prompt, n_generated = ends[0].usage, sum(end.usage.n_generated for end in ends)
    n_reasoning = sum(end.usage.n_reasoning for end in ends)
    return Usage(
        prompt_tokens=prompt.n_prompt,
        completion_tokens=n_generated,
        total_tokens=prompt.n_prompt + n_generated,
        prompt_tokens_details=PromptTokensDetails(cached_tokens=prompt.n_cached),
        completion_tokens_details=CompletionTokensDetails(n_reasoning) if n_reasoning else msgspec.UNSET,
    )
