"""Writes an answer as a message of Anthropic's API: as one JSON object, or as a stream of events."""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Any

import msgspec

from ...core.errors import ApiError, ContextLengthError
from ...core.parts import (
    ContentPart,
    End,
    EndReason,
    Failed,
    Part,
    Progress,
    ReasoningPart,
    TextPart,
    ToolCallPiece,
    UsedTokens,
)
from ...http import framing
from ...http.context import State
from ...http.envelope import Envelope
from ...http.framing import Framing
from ...http.stream import Writer
from ..arguments import object_of, text_of
from ..timings import progress_at
from . import wire

_STATUSES = {503: 529}
"""529 is Anthropic's status for a busy server. After this status, Anthropic's clients wait and repeat the request."""
_TYPES = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    408: "timeout_error",
    409: "conflict_error",
    413: "request_too_large",
    429: "rate_limit_error",
    503: "overloaded_error",
}


def error_of(error: ApiError) -> wire.MessageError:
    kind = _TYPES.get(error.status) or ("api_error" if error.status >= 500 else "invalid_request_error")
    return wire.MessageError(error=wire.MessageErrorBody(kind, _message_of(error), error.code, error.param))


def _message_of(error: ApiError) -> str:
    """Returns the text of an error. For a prompt that is too long, the text begins as in Anthropic's API. Agents
    recognize the error by this text, and read the numbers of tokens from it.
    """
    if isinstance(error, ContextLengthError):
        return f"prompt is too long: {error.n_tokens} tokens > {error.n_ctx} maximum. {error.message}"
    return error.message


def _error(error: ApiError) -> bytes:
    return msgspec.json.encode(error_of(error))


ENVELOPE = Envelope(
    wire.MessageError, _error, lambda error: framing.named_event(b"error", _error(error)), statuses=_STATUSES
)


# --- blocks ----------------------------------------------------------------------------------------------------------


SIGNATURE = "llmd"
"""Signature of all reasoning. The signature proves nothing, but clients do not send back reasoning that has no
signature.
"""
BlockKey = tuple[type[Part], int]


def block_key(part: ContentPart) -> BlockKey:
    """Returns the key of the part's block. Successive parts with the same key form one block."""
    return type(part), part.call if isinstance(part, ToolCallPiece) else 0


def blocks_of(parts: Sequence[Part], *, is_cut: bool) -> list[wire.AnswerBlock]:
    """Returns the content blocks of an answer. `is_cut` is true if a tool call of the answer can be incomplete."""
    content = (part for part in parts if isinstance(part, ContentPart))
    return [block for _, run in groupby(content, block_key) for block in _block(list(run), is_cut)]


def _block(run: list[Any], is_cut: bool) -> Iterator[wire.AnswerBlock]:
    first = run[0]
    if isinstance(first, ToolCallPiece):
        yield _call(first, "".join(piece.arguments for piece in run), is_cut)
        return
    text = "".join(part.text for part in run)
    if text:
        yield wire.ThinkingBlock(text, SIGNATURE) if isinstance(first, ReasoningPart) else wire.TextBlock(text)


def _call(first: ToolCallPiece, arguments: str, is_cut: bool) -> wire.AnswerBlock:
    """Returns the block of a call. If the arguments are not a JSON object, returns a text block with the call as the
    model wrote it.
    """
    name = first.name or ""
    try:
        found = msgspec.json.decode(object_of(arguments, is_cut=is_cut) or b"", type=dict[str, Any])
    except (msgspec.DecodeError, RecursionError):
        return wire.TextBlock(text_of(name, arguments))
    return wire.ToolUseBlock(first.id or "", name, found)


# --- events ----------------------------------------------------------------------------------------------------------


_STOP_REASONS: dict[EndReason, wire.StopReason] = {"end": "end_turn", "stop": "stop_sequence", "length": "max_tokens"}
_DELTAS: dict[type[Part], tuple[bytes, bytes]] = {
    TextPart: (b"text_delta", b"text"),
    ReasoningPart: (b"thinking_delta", b"thinking"),
    ToolCallPiece: (b"input_json_delta", b"partial_json"),
}
_TEXT: BlockKey = (TextPart, 0)
_encode = msgspec.json.Encoder().encode


def _typed_event(kind: str, **members: Any) -> bytes:
    return framing.named_event(kind.encode(), _encode({"type": kind, **members}))


_PING = _typed_event("ping")


class MessageWriter(Writer):
    """Writes one answer. The first event of a stream has the number of reused tokens, so it is written only when the
    first part of the answer arrives. In the delta events of a block, everything except the text is encoded only once.
    """

    framing = Framing(framing.EVENTS.media, keep_alive=_PING)

    def __init__(self, state: State, *, n_tokens_max: int, reports_progress: bool = False) -> None:
        """`n_tokens_max` is max_tokens of the request, and `reports_progress` is return_progress of the request."""
        self._n_tokens_max = n_tokens_max
        self._reports_progress = reports_progress
        self._id = "msg_" + secrets.token_hex(12)
        self._model = state.model_id
        self._is_begun = False
        """True if the first event of the stream has been written."""
        self._open: BlockKey | None = None
        """Key of the block that is open, or None."""
        self._n_blocks = 0
        self._delta_opens = self._delta_closes = b""
        self._calls = False
        self._ending = b""

    def complete(self, parts: Sequence[Part]) -> bytes:
        [end] = (part for part in parts if isinstance(part, End))
        blocks = blocks_of(parts, is_cut=end.is_cut)
        has_calls = any(isinstance(block, wire.ToolUseBlock) for block in blocks)
        return _encode(
            wire.MessageAnswer(
                id=self._id,
                model=self._model,
                content=blocks,
                usage=usage_of(end.usage),
                session=end.session,
                **self._stopped(end, has_calls),
            )
        )

    # --- events ------------------------------------------------------------------------------------------------------

    def events(self, parts: Sequence[Part]) -> bytes:
        if len(parts) == 1:  # by far the most frequent case
            return self._event(parts[0])
        return b"".join(map(self._event, parts))

    def _event(self, part: Part) -> bytes:
        if type(part) is TextPart and self._open == _TEXT:
            return self._delta_opens + _encode(part.text) + self._delta_closes
        if isinstance(part, ContentPart):
            return self._content(part)
        if isinstance(part, Progress):
            begun = self._begun(wire.MessageUsage(part.n_prompt - part.n_cached, 0, part.n_cached))
            if self._reports_progress:  # clients ignore unknown members of a ping
                return begun + _typed_event("ping", prompt_progress=progress_at(part))
            return begun or _PING
        if isinstance(part, End):
            return self._begun(usage_of(part.usage)) + self._closed() + self._ended(part)
        if isinstance(part, Failed):
            return ENVELOPE.event(part.error)
        raise TypeError(f"{type(part).__name__}: no request of this dialect can ask for it")

    def _begun(self, usage: wire.MessageUsage) -> bytes:
        if self._is_begun:
            return b""
        self._is_begun = True
        return _typed_event("message_start", message=wire.MessageAnswer(id=self._id, model=self._model, usage=usage))

    def _content(self, part: ContentPart) -> bytes:
        key, before = block_key(part), b""
        if key != self._open:
            before = self._begun(wire.MessageUsage()) + self._closed() + self._opening(part, key)
        text = part.arguments if isinstance(part, ToolCallPiece) else part.text
        return before + self._delta_opens + _encode(text) + self._delta_closes if text else before

    def _opening(self, part: ContentPart, key: BlockKey) -> bytes:
        self._open = key
        kind, member = _DELTAS[type(part)]
        head = b'{"type":"content_block_delta","index":%d,"delta":{"type":"%b","%b":' % (self._n_blocks, kind, member)
        self._delta_opens = framing.NAME_OPENS + b"content_block_delta\n" + framing.OPENS + head
        self._delta_closes = b"}}" + framing.CLOSES
        return _typed_event("content_block_start", index=self._n_blocks, content_block=self._empty(part))

    def _empty(self, part: ContentPart) -> dict[str, Any]:
        if isinstance(part, TextPart):
            return {"type": "text", "text": ""}
        if isinstance(part, ReasoningPart):
            return {"type": "thinking", "thinking": "", "signature": ""}
        self._calls = True
        return {"type": "tool_use", "id": part.id or "", "name": part.name or "", "input": {}}

    def _closed(self) -> bytes:
        if self._open is None:
            return b""
        index, kind = self._n_blocks, self._open[0]
        self._open = None
        self._n_blocks += 1
        signature = {"type": "signature_delta", "signature": SIGNATURE}
        signed = _typed_event("content_block_delta", index=index, delta=signature) if kind is ReasoningPart else b""
        return signed + _typed_event("content_block_stop", index=index)

    def _ended(self, end: End) -> bytes:
        self._ending = _typed_event("message_stop")
        delta = self._stopped(end, self._calls)
        return _typed_event("message_delta", delta=delta, usage=usage_of(end.usage), session=end.session)

    def ending(self) -> bytes:
        """Returns the last event of the stream, or nothing if the stream ended with an error."""
        return self._ending

    def _stopped(self, end: End, has_calls: bool) -> dict[str, Any]:
        """Returns stop_reason and stop_sequence."""
        if has_calls and end.reason != "length" and not end.has_broken_call:
            return {"stop_reason": "tool_use", "stop_sequence": None}
        if end.reason == "stop" and end.stop is None:  # a stop token counts as the model's own end
            return {"stop_reason": "end_turn", "stop_sequence": None}
        if end.reason == "length" and end.usage.n_generated < self._n_tokens_max:
            return {"stop_reason": "model_context_window_exceeded", "stop_sequence": None}
        return {"stop_reason": _STOP_REASONS[end.reason], "stop_sequence": end.stop}


def usage_of(used: UsedTokens) -> wire.MessageUsage:
    return wire.MessageUsage(
        input_tokens=used.n_prompt - used.n_cached,
        cache_read_input_tokens=used.n_cached,
        output_tokens=used.n_generated,
        output_tokens_details=wire.OutputDetails(used.n_reasoning) if used.n_reasoning else msgspec.UNSET,
    )
