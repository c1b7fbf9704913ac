"""Checks that the decode thread makes progress, for /ready and for systemd's watchdog."""

from __future__ import annotations

import math
import time
from collections.abc import Callable

from ..core import limits

ReadHeartbeat = Callable[[], tuple[int, bool]]
"""Returns the number of loops of the decode thread, and whether the thread is inside a step (Engine.heartbeat)."""


class Heartbeat:
    """Compares each reading with the last. A thread that waits for work makes progress; a thread that is still in the
    step of the last reading does not.
    """

    def __init__(self, read: ReadHeartbeat, clock: Callable[[], float] = time.monotonic) -> None:
        self._read = read
        self._clock = clock
        self._count = -1
        self._since = clock()

    def stalled_for_s(self) -> float:
        """Returns for how long the decode thread has been observed in the same step; 0 if it makes progress."""
        count, busy = self._read()
        if count != self._count or not busy:
            self._count = count
            self._since = self._clock()
            return 0.0
        return self._clock() - self._since


# --- loading ----------------------------------------------------------------------------------------------------------


class Loading:
    """Progress of loading the model."""

    def __init__(self, per_mille: Callable[[], int], clock: Callable[[], float] = time.monotonic) -> None:
        self.per_mille = per_mille
        self._clock = clock
        self._since = clock()

    def seconds(self) -> float:
        return self._clock() - self._since

    def retry_after_s(self) -> int:
        """Returns the recommended delay before a retry, estimated from the time of the part that is loaded."""
        per_mille = self.per_mille()
        left = self.seconds() * (1000 - per_mille) / per_mille if per_mille > 0 else 0.0
        return min(max(math.ceil(left), limits.RETRY_AFTER_S), limits.LOAD_RETRY_AFTER_S_MAX)
