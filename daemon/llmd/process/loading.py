"""The progress of loading the model, for /ready and for systemd."""

from __future__ import annotations

import math
import time
from collections.abc import Callable

from ..core import limits


class Loading:
    """How much of the model has been read, and for how long."""

    def __init__(self, per_mille: Callable[[], int], clock: Callable[[], float] = time.monotonic) -> None:
        self._ask = per_mille
        self._clock = clock
        self._since = clock()

    def per_mille(self) -> int:
        return self._ask()

    def seconds(self) -> float:
        return self._clock() - self._since

    def retry_after_s(self) -> int:
        """When to ask again, if the rest goes as fast as what has been read."""
        per_mille = self.per_mille()
        left = self.seconds() * (1000 - per_mille) / per_mille if per_mille > 0 else 0.0
        return min(max(math.ceil(left), limits.RETRY_AFTER_S), limits.LOAD_RETRY_AFTER_S_MAX)
