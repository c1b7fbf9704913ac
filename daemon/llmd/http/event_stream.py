"""The frame of server-sent events: what a dialect writes into it is its own business."""

from __future__ import annotations

from .framing import Framing

FRAMING = Framing("text/event-stream", keep_alive=b": keep-alive\n\n")
"""Kept alive by a comment."""
NAME_OPENS = b"event: "
OPENS = b"data: "
CLOSES = b"\n\n"


def event(data: bytes) -> bytes:
    """`data`: in one line. Who writes many of one form encodes what stands before and behind its text once."""
    return OPENS + data + CLOSES


def named(name: bytes, data: bytes) -> bytes:
    """An event of dialects that have several kinds."""
    return NAME_OPENS + name + b"\n" + event(data)
