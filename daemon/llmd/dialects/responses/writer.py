"""Writes an answer as a response of the Responses API: as one JSON object, or as a stream of events."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeVar

import msgspec

from ...core.errors import ApiError
from ...core.parts import (
    End,
    Failed,
    GeneratedToken,
    Part,
    Progress,
    ReasoningPart,
    TextPart,
    ToolCallPiece,
    UsedTokens,
)
from ...http import framing
from ...http.context import State
from ...http.envelope import OWN
from ...http.stream import Writer
from ..probabilities import chosen_tokens
from ..timings import progress_at
from . import wire
from .item_writers import CallItemWriter, Event, ItemWriter, MessageItemWriter, ReasoningItemWriter, call_of, new_id
from .reader import ParsedRequest

G = TypeVar("G", bound=ItemWriter)
Keep = Callable[[str, bytes], None]
"""Function that stores a response that ended without an error. Its arguments are the response's id and body."""
_encode = msgspec.json.Encoder().encode


class ResponseWriter(Writer):
    """Writes one response. Only one item is open at a time: opening an item closes the previous item."""

    def __init__(self, state: State, *, parsed: ParsedRequest, keep: Keep | None) -> None:
        self._parsed = parsed
        self._keep = keep
        self._response = msgspec.structs.replace(
            parsed.response, id=new_id("resp"), created_at=int(time.time()), model=state.model_id
        )
        self._n_events = 0
        self._done: list[wire.OutputItem] = []
        self._open: ItemWriter | None = None
        self._call = -1
        """Number of the newest tool call, or -1 before the first call."""
        self._body = b""
        self._unassigned: list[GeneratedToken] = []
        """Tokens that arrived without text. Their text can arrive with a later token, because the parser holds back
        blanks, and text that may become a delimiter.
        """

    def complete(self, parts: Sequence[Part]) -> bytes:
        self.events(parts)
        return self._body

    # --- events ------------------------------------------------------------------------------------------------------

    def opening(self) -> bytes:
        begun = self._with(self._response)
        return self._sent([(b"response.created", begun), (b"response.in_progress", begun)])

    def events(self, parts: Sequence[Part]) -> bytes:
        """Returns the events of these parts. If `parts` is empty, returns an event that only keeps the stream alive
        (response.in_progress). A comment line is not enough, because some clients limit the time between two events.
        """
        if not parts:
            return self._sent([(b"response.in_progress", self._with(self._response))])
        first, item = parts[0], self._open
        if len(parts) == 1 and type(first) is TextPart and not first.details and isinstance(item, MessageItemWriter):
            return self._sent(item.more(first.text))  # by far the most frequent case
        return b"".join([self._sent(self._events(part)) for part in parts])

    def _sent(self, events: Sequence[Event]) -> bytes:
        return b"".join(map(self._framed, events))

    def _framed(self, event: Event) -> bytes:
        number = self._n_events
        self._n_events += 1
        return _framed(event, number)

    def _with(self, response: wire.Response) -> bytes:
        return b'"response":' + _encode(response)

    def _events(self, part: Part) -> list[Event]:
        own = part.details.log_probabilities if isinstance(part, TextPart) and part.details is not None else []
        if isinstance(part, TextPart) and not part.text:
            self._unassigned += own
            return []
        before, self._unassigned = self._unassigned, []
        if isinstance(part, TextPart):
            begun, message = self._at(MessageItemWriter, MessageItemWriter)
            return [*begun, *message.more(part.text, chosen_tokens(_spelling(part.text, before, own)))]
        if isinstance(part, ReasoningPart):
            parsed = self._parsed
            make = partial(ReasoningItemWriter, is_summary=parsed.is_summary, is_enclosed=parsed.is_enclosed)
            begun, reasoning = self._at(ReasoningItemWriter, make)
            return [*begun, *reasoning.more(part.text)]
        if isinstance(part, ToolCallPiece):
            begun, call = self._called(part)
            return [*begun, *(call.more(part.arguments) if part.arguments else [])]
        if isinstance(part, End):
            return self._finished(part)
        if isinstance(part, Failed):
            return self._failed(part.error)
        if isinstance(part, Progress):
            progress = b',"prompt_progress":' + _encode(progress_at(part))
            return [(b"response.in_progress", self._with(self._response) + progress)]
        raise TypeError(f"{type(part).__name__}: no request of this dialect can ask for it")

    # --- items -------------------------------------------------------------------------------------------------------

    def _at(self, kind: type[G], make: Callable[[int], G], *, is_same: bool = True) -> tuple[list[Event], G]:
        """Returns the item writer to which the next part belongs. Also returns the events that must be sent before the
        part. If the open item is of this kind and `is_same` is true, returns its writer and no events. Otherwise closes
        the open item, and opens a new item for the part.
        """
        if isinstance(self._open, kind) and is_same:
            return [], self._open
        item = make(len(self._done) + (self._open is not None))
        events = [*self._closed("completed"), *item.opening()]
        self._open = item
        return events, item

    def _called(self, piece: ToolCallPiece) -> tuple[list[Event], CallItemWriter]:
        is_same, self._call = piece.call == self._call, piece.call
        name = self._parsed.offered.name_of(piece.name or "")
        return self._at(CallItemWriter, lambda index: call_of(index, name, piece), is_same=is_same)

    def _closed(self, status: wire.ItemStatus) -> list[Event]:
        item = self._open
        if item is None:
            return []
        self._open = None
        if isinstance(item, CallItemWriter) and not item.is_complete():
            status = "incomplete"
        events = item.closing(status)
        self._done.append(item.output_item(status))
        return events

    # --- ends --------------------------------------------------------------------------------------------------------

    def _finished(self, end: End) -> list[Event]:
        begun: list[Event] = []
        if self._open is None and not self._done:
            begun, _ = self._at(MessageItemWriter, MessageItemWriter)
        is_cut = end.reason == "length"
        events = [*begun, *self._closed("incomplete" if is_cut else "completed")]
        response = msgspec.structs.replace(
            self._response,
            completed_at=None if is_cut else int(time.time()),
            status="incomplete" if is_cut else "completed",
            incomplete_details=wire.Incompleteness("max_output_tokens") if is_cut else None,
            output=self._done,
            usage=usage_of(end.usage),
            session=end.session,
        )
        self._body = _encode(response)
        if self._keep is not None:
            self._keep(response.id, self._body)
        name = b"response.incomplete" if is_cut else b"response.completed"
        return [*events, (name, b'"response":' + self._body)]

    def _failed(self, error: ApiError) -> list[Event]:
        """Reports the error in two events, error and response.failed: some clients handle only the first, and some only
        the second.
        """
        events = self._closed("incomplete")
        response = msgspec.structs.replace(
            self._response, status="failed", error=wire.ResponseFailure(error.code, error.message), output=self._done
        )
        return [*events, (b"error", _error(error)), (b"response.failed", self._with(response))]


def _framed(event: Event, number: int) -> bytes:
    """Makes a server-sent event. `number` is the number of events before it in the stream."""
    name, members = event
    return b'event: %b\n%b{"type":"%b","sequence_number":%d,%b}%b' % (
        name, framing.OPENS, name, number, members, framing.CLOSES,
    )  # fmt: skip


def _error(error: ApiError) -> bytes:
    """Returns the members of the event `error`."""
    return b'"code":%b,"message":%b,"param":%b' % tuple(map(_encode, (error.code, error.message, error.param)))


def _failure(error: ApiError) -> bytes:
    """Returns the events of a stream that fails before its request was read. The response in the last event has only
    the members that do not come from the request.
    """
    response = {
        "id": new_id("resp"), "object": "response", "created_at": int(time.time()), "status": "failed",
        "error": wire.ResponseFailure(error.code, error.message), "output": [],
    }  # fmt: skip
    failed = b'"response":' + _encode(response)
    return _framed((b"error", _error(error)), 0) + _framed((b"response.failed", failed), 1)


ENVELOPE = dataclasses.replace(OWN, event=_failure)


def _spelling(text: str, before: list[GeneratedToken], own: list[GeneratedToken]) -> list[GeneratedToken]:
    """Returns the last tokens of `before` and `own` whose joined texts are exactly `text`. The tokens in `own` arrived
    together with the text. The tokens in `before` arrived earlier, without text. If no such tokens are found, only
    `own` is returned.
    """
    left, tokens = text.encode(), [*before, *own]
    for n in reversed(range(len(tokens))):
        if not left.endswith(tokens[n].text):
            break
        left = left[: len(left) - len(tokens[n].text)]
        if not left:
            return tokens[n:]
    return own


def usage_of(used: UsedTokens) -> wire.ResponseUsage:
    return wire.ResponseUsage(
        input_tokens=used.n_prompt,
        input_tokens_details=wire.CachedInput(used.n_cached),
        output_tokens=used.n_generated,
        output_tokens_details=wire.ReasonedOutput(used.n_reasoning),
        total_tokens=used.n_prompt + used.n_generated,
    )
