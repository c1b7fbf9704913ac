"""How the bytes of a stream are framed, as server-sent events or as lines of JSON: what its head says, and what may be
sent while there is nothing to say. What a dialect writes into a frame is its own business."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Framing:
    media: str
    keep_alive: bytes
    """Bytes that every client of such a stream skips, wherever they come between two events."""

    def headers(self) -> Mapping[str, str]:
        return {
            "Content-Type": self.media,
            "Cache-Control": "no-cache",
            "X-Accel-Buffering": "no",  # a proxy in front must not collect the events
        }


LINES = Framing("application/x-ndjson", keep_alive=b" ")
"""JSON allows a blank in front of the next value; an empty line would be one too many."""
LINE_CLOSES = b"\n"
EVENTS = Framing("text/event-stream", keep_alive=b": keep-alive\n\n")
"""A comment keeps it alive."""
NAME_OPENS = b"event: "
OPENS = b"data: "
CLOSES = b"\n\n"


def event(data: bytes) -> bytes:
    """`data`: in one line. A writer of many events of one form encodes once what stands around their text."""
    return OPENS + data + CLOSES


def named_event(name: bytes, data: bytes) -> bytes:
    """Frames an event with a name, for dialects that have several kinds."""
    return NAME_OPENS + name + b"\n" + event(data)
