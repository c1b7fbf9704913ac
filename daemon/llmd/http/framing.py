"""How the bytes of a stream are framed: what its head says, and what may be sent while there is nothing to say."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Framing:
    media: str
    keep_alive: bytes
    """Every client of such a stream skips it, wherever it comes between two events."""

    def headers(self) -> Mapping[str, str]:
        return {
            "Content-Type": self.media,
            "Cache-Control": "no-cache",
            "X-Accel-Buffering": "no",  # a proxy in front must not collect the events
        }
