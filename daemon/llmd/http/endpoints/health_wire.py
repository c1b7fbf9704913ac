"""Types of the answers of /live, /health and /ready. This module does no I/O."""

from __future__ import annotations

from typing import Literal

import msgspec


class Liveness(msgspec.Struct, frozen=True):
    status: Literal["ok"]
    version: str
    pid: int


class Health(msgspec.Struct, frozen=True):
    status: Literal["ok"]


class HealthError(msgspec.Struct, frozen=True):
    """The error of llama-server's /health while the model loads. Its `code` is the HTTP status."""

    code: int
    message: str
    type: str


class HealthErrorEnvelope(msgspec.Struct, frozen=True):
    error: HealthError


class DownloadProgress(msgspec.Struct, frozen=True):
    name: str
    bytes: int
    """Bytes of the model that are on this machine."""
    total_bytes: int


class Readiness(msgspec.Struct, frozen=True):
    """Whether the daemon can serve requests. The status `loading` means that the model is being downloaded or loaded.
    The status `stalled` means that the decode thread has been in the same step for `seconds_without_progress`.
    """

    status: Literal["loading", "ready", "stalled", "stopping"]
    model: str
    requests: int
    seconds_without_progress: float
    loaded_per_mille: int = 1000
    """How much of the model has been loaded, in thousandths."""
    seconds_loading: float | None = None
    """Seconds since the start of llmd. null if the model is loaded."""
    download: DownloadProgress | None = None
    """The running download of the model. null if nothing is being downloaded."""
