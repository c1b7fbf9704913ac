"""How a stream is divided into frames. A frame is a server-sent event or a line of JSON. A framing has the HTTP
headers, the bytes around a frame, and the bytes that keep a silent stream alive. The dialect's writer makes the content
of each frame.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Framing:
    media: str
    keep_alive: bytes
    """Bytes to send if nothing else was sent for a while, so that proxies and clients keep the stream open. Every
    client skips these bytes between two frames.
    """

    def loading(self, status: str) -> bytes:
        """Returns bytes that keep a stream alive while the model loads. For server-sent events, these are a comment
        with `status`, which must be one line. Lines of JSON have no comments, so `status` is left out.
        """
        if self.media != _EVENT_STREAM:
            return self.keep_alive
        return b": %b\n%b" % (status.encode(), self.keep_alive)

    def frame(self, data: bytes) -> bytes:
        """Makes a frame of a complete JSON document, which must be one line."""
        return event(data) if self.media == _EVENT_STREAM else data + LINE_CLOSES

    def headers(self) -> Mapping[str, str]:
        return {
            "Content-Type": self.media,
            "Cache-Control": "no-cache",
            "X-Accel-Buffering": "no",  # tells proxies such as nginx not to buffer the stream
        }


_EVENT_STREAM = "text/event-stream"
LINES = Framing("application/x-ndjson", keep_alive=b" ")
"""Lines of JSON. A blank keeps the stream alive, because JSON allows blanks before a value. An empty line cannot be
used, because some clients do not expect empty lines.
"""
LINE_CLOSES = b"\n"
EVENTS = Framing(_EVENT_STREAM, keep_alive=b": keep-alive\n\n")
"""Server-sent events. A comment, which clients skip, keeps the stream alive."""
NAME_OPENS = b"event: "
OPENS = b"data: "
CLOSES = b"\n\n"


def event(data: bytes) -> bytes:
    """Makes a server-sent event of `data`, which must be one line. For speed, a writer of many similar events does not
    call this function for each event. It prepares the bytes around the changing text once.
    """
    return OPENS + data + CLOSES


def named_event(name: bytes, data: bytes) -> bytes:
    """Makes a server-sent event that has a name, for dialects that have several kinds of events."""
    return NAME_OPENS + name + b"\n" + event(data)
