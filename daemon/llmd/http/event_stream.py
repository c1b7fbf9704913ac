"""The frame of server-sent events: what a dialect writes into it is its own business."""

from __future__ import annotations

HEADERS = {
    "Content-Type": "text/event-stream",
    "Cache-Control": "no-cache",
    "X-Accel-Buffering": "no",  # a proxy in front must not collect the events
}
OPENS = b"data: "
CLOSES = b"\n\n"
KEEP_ALIVE = b": keep-alive\n\n"
"""A comment, which every client skips."""


def event(data: bytes) -> bytes:
    """`data`: in one line. Who writes many of one form encodes what stands before and behind its text once."""
    return OPENS + data + CLOSES
