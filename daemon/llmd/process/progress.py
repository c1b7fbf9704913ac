"""Measures how much of the model is loaded, and whether the decode thread makes progress, for /ready and systemd."""

from __future__ import annotations

import math
import time
from collections.abc import Callable

from ..core import limits

ReadHeartbeat = Callable[[], tuple[int, bool]]
"""Type of Engine.heartbeat, a function that returns how many iterations of its loop the decode thread has completed,
and whether the thread is inside a step.
"""


class Heartbeat:
    """Tells whether the decode thread makes progress, by comparing each reading of the thread's counter with the
    reading before. A thread that waits for work counts as making progress. A thread that is still in the same step as
    at the last reading makes no progress.
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


# --- loading the model ------------------------------------------------------------------------------------------------


class Loading:
    """Measures how much of the model is loaded, and for how long it has been loading."""

    def __init__(self, per_mille: Callable[[], int], clock: Callable[[], float] = time.monotonic) -> None:
        self.per_mille = per_mille
        self._clock = clock
        self._since = clock()

    def seconds(self) -> float:
        return self._clock() - self._since

    def retry_after_s(self) -> int:
        """Returns after how many seconds a client should try again, which is the remaining time of loading, within
        fixed limits. The remaining time is estimated from how long the part that is loaded has taken.
        """
        per_mille = self.per_mille()
        left = self.seconds() * (1000 - per_mille) / per_mille if per_mille > 0 else 0.0
        return min(max(math.ceil(left), limits.RETRY_AFTER_S), limits.LOAD_RETRY_AFTER_S_MAX)
