"""The frame of streams of JSON, one value a line."""

from __future__ import annotations

from .framing import Framing

FRAMING = Framing("application/x-ndjson", keep_alive=b" ")
"""Kept alive by a blank in front of the next value: JSON allows it, and an empty line would be one too many."""
CLOSES = b"\n"
