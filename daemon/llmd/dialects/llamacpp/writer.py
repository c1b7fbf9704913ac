"""Writes the parts of an answer in llama.cpp's form, complete or as events."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from ...core.parts import (
    End,
    EndReason,
    Failed,
    LogProbabilities,
    Part,
    PromptTokens,
    TextPart,
    TokenIds,
    TokenProbability,
)
from ...http import framing
from ...http.context import State
from ...http.envelope import OWN
from ...http.stream import Writer
from ..probabilities import text_of
from ..timings import timings_of
from .wire import NativeChosen, NativeCompletion, NativeProbable, StopType

_STOPPED: dict[EndReason, StopType] = {"end": "eos", "stop": "word", "length": "limit"}
_TEXT_OPENS = framing.OPENS + b'{"index":0,"content":'
_TEXT_CLOSES = b',"stop":false,"id_slot":-1}' + framing.CLOSES
_NO_TOKENS = b',"tokens":[]'
_encode = msgspec.json.Encoder().encode
_Details = LogProbabilities | TokenIds
"""Parts that are reported in the event of the text before them."""


class NativeWriter(Writer):
    def __init__(self, state: State, *, fields: Sequence[str] | None) -> None:
        """`fields` has the paths of the members to return in the last object. None if all members are returned."""
        self._model = state.model_id
        self._fields = fields
        self._has_new_line = False

    def complete(self, parts: Sequence[Part]) -> bytes:
        text = "".join(part.text for part in parts if isinstance(part, TextPart))
        self._has_new_line = "\n" in text
        probable = [part for part in parts if isinstance(part, LogProbabilities)]
        return self._last(
            next(part for part in parts if isinstance(part, End)),
            content=text,
            tokens=[one for part in parts if isinstance(part, TokenIds) for one in part.tokens],
            completion_probabilities=probabilities_of(probable) if probable else msgspec.UNSET,
        )

    def events(self, parts: Sequence[Part]) -> bytes:
        if len(parts) == 1:  # by far the most frequent case
            return self._event(parts[0])
        text = "".join(part.text for part in parts if isinstance(part, TextPart))
        details = [part for part in parts if isinstance(part, _Details)]
        rest = (part for part in parts if not isinstance(part, _Details | TextPart))
        return (self._text_event(text, details) if text or details else b"") + b"".join(map(self._event, rest))

    def _event(self, part: Part) -> bytes:
        if isinstance(part, TextPart):
            return self._text_event(part.text, ())
        if isinstance(part, _Details):
            return self._text_event("", (part,))
        if isinstance(part, End):
            return framing.event(self._last(part))
        if isinstance(part, Failed):
            return framing.event(OWN.body(part.error))
        if isinstance(part, PromptTokens):  # come with the answer's ids, but are not in this API
            return b""
        raise TypeError(f"{type(part).__name__}: no request of this dialect can ask for it")

    def _text_event(self, text: str, details: Sequence[_Details]) -> bytes:
        self._has_new_line = self._has_new_line or "\n" in text
        tokens = [one for part in details if isinstance(part, TokenIds) for one in part.tokens]
        members = b',"tokens":' + _encode(tokens) if tokens else _NO_TOKENS
        probable = [part for part in details if isinstance(part, LogProbabilities)]
        if probable:
            members += b',"completion_probabilities":' + _encode(probabilities_of(probable))
        return _TEXT_OPENS + _encode(text) + members + _TEXT_CLOSES

    def _last(self, end: End, **members: Any) -> bytes:
        """Returns the last object of a stream, or the whole answer. `members` has the text of a whole answer, and its
        details.
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


def probabilities_of(parts: Sequence[LogProbabilities]) -> list[NativeChosen]:
    return [
        NativeChosen(one.token, text_of(one), list(one.text), one.log_probability, [_probable(one) for one in likely])
        for part in parts
        for one, likely in zip(part.chosen, part.likely, strict=True)
    ]


def _probable(one: TokenProbability) -> NativeProbable:
    return NativeProbable(one.token, text_of(one), list(one.text), one.log_probability)


def chosen(completion: Mapping[str, Any], paths: Sequence[str]) -> dict[str, Any]:
    """Returns the members at these paths, without those that are missing."""
    found: dict[str, Any] = {}
    for path in paths:
        value: Any = completion
        for name in path.split("/"):
            value = value.get(name) if isinstance(value, Mapping) else None
        if value is not None:
            found[path] = value
    return found
