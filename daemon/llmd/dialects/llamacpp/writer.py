"""From the parts of an answer to llama.cpp's bytes, as a whole or as events."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from ...core.parts import End, EndReason, Failed, Part, TextPart
from ...http import event_stream
from ...http.context import State
from ...http.envelope import OWN
from .wire import NativeCompletion, NativeTimings, StopType

_STOPPED: dict[EndReason, StopType] = {"end": "eos", "stop": "word", "length": "limit"}
_TEXT_OPENS = event_stream.OPENS + b'{"index":0,"content":'
_TEXT_CLOSES = b',"tokens":[],"stop":false,"id_slot":-1}' + event_stream.CLOSES
_encode_text = msgspec.json.Encoder().encode


class NativeWriter:
    framing = event_stream.FRAMING

    def __init__(self, state: State, *, fields: Sequence[str] | None, is_mute: bool) -> None:
        """`fields`: of the last object, their paths; None: all. `is_mute`: what was generated is not told."""
        self._model = state.model_id
        self._fields = fields
        self._is_mute = is_mute
        self._has_new_line = False

    def whole(self, parts: Sequence[Part]) -> bytes:
        text = "".join(part.text for part in parts if isinstance(part, TextPart) and not self._is_mute)
        self._has_new_line = "\n" in text
        return self._last(next(part for part in parts if isinstance(part, End)), text)

    def opening(self) -> bytes:
        return b""

    def events(self, parts: Sequence[Part]) -> bytes:
        return b"".join(map(self._event, parts))

    def ending(self) -> bytes:
        return b""

    def _event(self, part: Part) -> bytes:
        if isinstance(part, TextPart):
            self._has_new_line = self._has_new_line or "\n" in part.text
            return b"" if self._is_mute else _TEXT_OPENS + _encode_text(part.text) + _TEXT_CLOSES
        if isinstance(part, End):
            return event_stream.event(self._last(part, ""))
        if isinstance(part, Failed):
            return event_stream.event(OWN.body(part.error))
        raise TypeError(f"{type(part).__name__}: nobody can have asked for it")

    def _last(self, end: End, text: str) -> bytes:
        n_generated = 0 if self._is_mute else end.usage.n_generated
        told = NativeCompletion(
            content=text,
            model=self._model,
            tokens_predicted=n_generated,
            tokens_evaluated=end.usage.n_prompt,
            tokens_cached=end.usage.n_prompt + n_generated,
            has_new_line=self._has_new_line,
            stop_type=_STOPPED[end.reason],
            timings=timings_of(end, n_generated),
        )
        return msgspec.json.encode(told if self._fields is None else chosen(msgspec.to_builtins(told), self._fields))


def timings_of(end: End, n_generated: int) -> NativeTimings:
    session, n_prefilled = end.session, end.session.prefilled_prompt_tokens
    return NativeTimings(
        cache_n=session.reused_prompt_tokens,
        prompt_n=n_prefilled,
        prompt_ms=session.prefill_ms,
        prompt_per_token_ms=session.prefill_ms / max(n_prefilled, 1),
        prompt_per_second=_per_second(n_prefilled, session.prefill_ms),
        predicted_n=n_generated,
        predicted_ms=session.decode_ms,
        predicted_per_token_ms=session.decode_ms / max(n_generated, 1),
        predicted_per_second=_per_second(n_generated, session.decode_ms),
    )


def _per_second(n: int, ms: float) -> float:
    return 1000 * n / ms if ms > 0 else 0.0


def chosen(told: Mapping[str, Any], paths: Sequence[str]) -> dict[str, Any]:
    """By path; what is not there is left out."""
    found: dict[str, Any] = {}
    for path in paths:
        value: Any = told
        for name in path.split("/"):
            value = value.get(name) if isinstance(value, Mapping) else None
        if value is not None:
            found[path] = value
    return found
