"""Measures how much of the model is downloaded and loaded, and whether the decode thread makes progress, for /ready and
systemd.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable

from ..core import limits

ReadHeartbeat = Callable[[], tuple[int, bool]]
"""Type of the function Engine.heartbeat. The function returns the number of completed iterations of the decode thread's
loop. It also returns whether the thread is inside a step.
"""


class Heartbeat:
    """Tells whether the decode thread makes progress, by comparing each reading of the thread's counter with the
    reading before. A thread that waits for work counts as making progress. A thread that is still in the same step as
    at the previous reading makes no progress.
    """

    def __init__(self, read: ReadHeartbeat, clock: Callable[[], float] = time.monotonic) -> None:
        self._read = read
        self._clock = clock
        self._count = -1
        self._since = clock()

    def stalled_for_s(self) -> float:
        """Reads the counter again. Returns for how many seconds the decode thread has been seen in the same step, or 0
        if the thread makes progress.
        """
        count, busy = self._read()
        if count != self._count or not busy:
            self._count = count
            self._since = self._clock()
            return 0.0
        return self._clock() - self._since


# --- downloading and loading the model --------------------------------------------------------------------------------


class Download:
    """Progress of a download. Written by the thread that downloads, and read by any thread."""

    def __init__(self, on_change: Callable[[Download], None] | None = None) -> None:
        self.name = ""
        self.digest = ""
        """ "sha256:..." of the first file, or "" if the hub does not state it."""
        self.n_bytes = 0
        """Bytes of the model that are on this machine, including those of an earlier, interrupted download."""
        self.n_bytes_total = 0
        self.is_checking = False
        self.is_running = False
        self.on_change = on_change
        """Called after each change, in the thread that downloads."""

    def begin(self, name: str, n_bytes_total: int, digest: str = "") -> None:
        self.name, self.digest = name, digest
        self.n_bytes, self.n_bytes_total, self.is_running = 0, n_bytes_total, True
        self._changed()

    def add(self, n_bytes: int) -> None:
        self.n_bytes += n_bytes
        self._changed()

    def end(self) -> None:
        self.is_running = False
        self._changed()

    def percent(self) -> int:
        return min(100, 100 * self.n_bytes // self.n_bytes_total) if self.n_bytes_total else 0

    def _changed(self) -> None:
        if self.on_change is not None:
            self.on_change(self)


class Loading:
    """Measures how much of the model is loaded, and for how long it has been loading."""

    def __init__(
        self,
        per_mille: Callable[[], int],
        clock: Callable[[], float] = time.monotonic,
        download: Download | None = None,
    ) -> None:
        self.per_mille = per_mille
        self.download = download or Download()
        self._clock = clock
        self._since = clock()

    def seconds(self) -> float:
        return self._clock() - self._since

    def retry_after_s(self) -> int:
        """Returns after how many seconds a client should try again. This is the remaining time of loading, within fixed
        limits. The remaining time is estimated from the time so far and the share of the model that is loaded. During a
        download, returns the upper limit, because a download takes longer.
        """
        if self.download.is_running:
            return limits.LOAD_RETRY_AFTER_S_MAX
        per_mille = self.per_mille()
        left = self.seconds() * (1000 - per_mille) / per_mille if per_mille > 0 else 0.0
        return min(max(math.ceil(left), limits.RETRY_AFTER_S), limits.LOAD_RETRY_AFTER_S_MAX)

    def progress(self, model: str) -> tuple[int, str]:
        """Returns a measure of progress, and the status line for systemd. During download and loading, the measure
        grows. systemd's timeout is extended while it grows.
        """
        one, per_mille = self.download, self.per_mille()
        status = f"Loading {model}: {per_mille // 10} %"
        if one.is_running:
            status = f"Downloading {one.name}: {one.percent()} %"
        return one.n_bytes + per_mille, status
