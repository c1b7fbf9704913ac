"""Progress of loading the model, and of the decode thread, for /ready and systemd."""

from __future__ import annotations

import math
import time
from collections.abc import Callable

from ..core import limits

ReadHeartbeat = Callable[[], tuple[int, bool]]
"""Returns the number of loops that the decode thread has completed, and whether the thread is inside a step
(Engine.heartbeat).
"""


class Heartbeat:
    """Finds out whether the decode thread makes progress, by comparing each reading with the last. A thread that waits
    for work counts as making progress. A thread that is still in the same step as at the last reading makes no
    progress.
    """

    def __init__(self, read: ReadHeartbeat, clock: Callable[[], float] = time.monotonic) -> None:
        self._read = read
        self._clock = clock
        self._count = -1
        self._since = clock()

    def stalled_for_s(self) -> float:
        """Returns the number of seconds for which the decode thread has been observed in the same step, or 0 if the
        thread makes progress.
        """
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
        """Returns the number of seconds after which a client should try again: the remaining time of loading, estimated
        from the time that the loaded part has taken.
        """
        per_mille = self.per_mille()
        left = self.seconds() * (1000 - per_mille) / per_mille if per_mille > 0 else 0.0
        return min(max(math.ceil(left), limits.RETRY_AFTER_S), limits.LOAD_RETRY_AFTER_S_MAX)
