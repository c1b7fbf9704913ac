"""Health as it travels. Types only, no I/O."""

from __future__ import annotations

from typing import Literal

import msgspec


class Health(msgspec.Struct, frozen=True):
    status: Literal["ok"]
    version: str
    pid: int


class Readiness(msgspec.Struct, frozen=True):
    """`loading`: the model is being read; `stalled`: the decode thread has been in one step for
    `seconds_without_progress`."""

    status: Literal["loading", "ready", "stalled", "stopping"]
    model: str
    requests: int
    seconds_without_progress: float
    loaded_per_mille: int = 1000
    """How much of the model has been read."""
    seconds_loading: float | None = None
    """Seconds since loading began; null: the model is loaded."""
