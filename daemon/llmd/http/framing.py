"""Framing of streams as server-sent events or as lines of JSON: the headers, the bytes around a frame, and the bytes
that keep a silent stream alive. The dialect's writer makes the content of each frame.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Framing:
    media: str
    keep_alive: bytes
    """Bytes that keep the stream alive. Every client skips these bytes between two events."""

    def headers(self) -> Mapping[str, str]:
        return {
            "Content-Type": self.media,
            "Cache-Control": "no-cache",
            "X-Accel-Buffering": "no",  # tells a proxy not to buffer the events
        }


LINES = Framing("application/x-ndjson", keep_alive=b" ")
"""Lines of JSON. A blank keeps the stream alive, because JSON allows blanks before a value. An empty line would not do,
because some clients do not expect empty lines.
"""
LINE_CLOSES = b"\n"
EVENTS = Framing("text/event-stream", keep_alive=b": keep-alive\n\n")
"""Server-sent events. A comment keeps the stream alive."""
NAME_OPENS = b"event: "
OPENS = b"data: "
CLOSES = b"\n\n"


def event(data: bytes) -> bytes:
    """Frames `data`, which must be one line. A writer of many similar events does not call this function, but encodes
    the bytes around the text once.
    """
    return OPENS + data + CLOSES


def named_event(name: bytes, data: bytes) -> bytes:
    """Frames an event with a name, for dialects with several kinds of events."""
    return NAME_OPENS + name + b"\n" + event(data)
