"""Writes an answer in the format of llama.cpp's /completion: as one JSON object, or as a stream of events."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from ...core.parts import (
    Details,
    End,
    EndReason,
    Failed,
    Part,
    Progress,
    PromptTokens,
    TextPart,
    TokenProbability,
    details_of,
)
from ...http import framing
from ...http.context import State
from ...http.envelope import OWN
from ...http.stream import Writer
from ..probabilities import text_of
from ..timings import progress_at, timings_of
from .wire import NativeChosen, NativeCompletion, NativeProbable, StopType

_STOPPED: dict[EndReason, StopType] = {"end": "eos", "stop": "word", "length": "limit"}
_TEXT_OPENS = framing.OPENS + b'{"index":0,"content":'
_TEXT_CLOSES = b',"tokens":[],"stop":false,"id_slot":-1}' + framing.CLOSES
_encode = msgspec.json.Encoder().encode


class NativeWriter(Writer):
    def __init__(self, state: State, *, fields: Sequence[str] | None) -> None:
        """`fields` has the paths of the members that the request wants (response_fields). In a stream, they are the
        members of the last event. None if the request wants all members.
        """
        self._model = state.model_id
        self._fields = fields
        self._has_new_line = False

    def complete(self, parts: Sequence[Part]) -> bytes:
        text = "".join(part.text for part in parts if isinstance(part, TextPart))
        self._has_new_line = "\n" in text
        return self._last(
            next(part for part in parts if isinstance(part, End)), content=text, **_members_of(details_of(parts))
        )

    def events(self, parts: Sequence[Part]) -> bytes:
        return b"".join(map(self._event, parts))

    def _event(self, part: Part) -> bytes:
        if isinstance(part, TextPart):
            self._has_new_line = self._has_new_line or "\n" in part.text
            if part.details is None:
                return _TEXT_OPENS + _encode(part.text) + _TEXT_CLOSES
            event = {"index": 0, "content": part.text, **_members_of(part.details), "stop": False, "id_slot": -1}
            return framing.event(_encode(event))
        if isinstance(part, End):
            return framing.event(self._last(part))
        if isinstance(part, Failed):
            return OWN.event(part.error)
        if isinstance(part, Progress):
            event = {"index": 0, "content": "", "tokens": [], "stop": False, "id_slot": -1}
            return framing.event(_encode(event | {"prompt_progress": progress_at(part)}))
        if isinstance(part, PromptTokens):  # another API returns these tokens if a request has return_tokens
            return b""
        raise TypeError(f"{type(part).__name__}: no request of this dialect can ask for it")

    def _last(self, end: End, **members: Any) -> bytes:
        """Returns the last object of a stream, or an answer that is not streamed. `members` has the text and the
        details of an answer that is not streamed.
        """
        completion = NativeCompletion(
            model=self._model,
            tokens_predicted=end.usage.n_generated,
            tokens_evaluated=end.usage.n_prompt,
            tokens_cached=end.usage.n_prompt + end.usage.n_generated,
            has_new_line=self._has_new_line,
            stop_type=_STOPPED[end.reason],
            timings=timings_of(end),
            **members,
        )
        return msgspec.json.encode(
            completion if self._fields is None else chosen(msgspec.to_builtins(completion), self._fields)
        )


def _members_of(details: Details) -> dict[str, Any]:
    chosen = [
        NativeChosen(one.token, text_of(one), list(one.text), one.log_probability, list(map(_probable, one.likely)))
        for one in details.log_probabilities
    ]
    return {"tokens": details.tokens, **({"completion_probabilities": chosen} if chosen else {})}


def _probable(one: TokenProbability) -> NativeProbable:
    return NativeProbable(one.token, text_of(one), list(one.text), one.log_probability)


def chosen(completion: Mapping[str, Any], paths: Sequence[str]) -> dict[str, Any]:
    """Returns only the members at these paths. A path without a member is ignored."""
    found: dict[str, Any] = {}
    for path in paths:
        value: Any = completion
        for name in path.split("/"):
            value = value.get(name) if isinstance(value, Mapping) else None
        if value is not None:
            found[path] = value
    return found
