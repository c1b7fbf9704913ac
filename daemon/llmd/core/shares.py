"""Fair shares between owners, by libllm's rule (share.h), for the daemon's own limits.

Owned by the event loop.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from .errors import ApiError


def share_of(limit: int, n_owners: int) -> int:
    """Returns the most that one owner can hold. Half of the equal part of each other owner stays free, and at least one
    in total.
    """
    if n_owners <= 1 or limit <= 1:
        return max(limit, 1)
    return limit - max((n_owners - 1) * limit // (2 * n_owners), 1)


def pick_eviction_victim(held: Iterable[tuple[int, str]]) -> tuple[int, str]:
    """Returns the session to drop: the least recently used session of the owner with the most sessions, so that no
    owner can drive out the others. `held` has owners and names of sessions, the least recently used first.
    """
    held = list(held)
    [(greediest, _)] = Counter(owner for owner, _ in held).most_common(1)
    return next(key for key in held if key[0] == greediest)


class Admission:
    """Counts the requests in progress, from before their bodies are read."""

    def __init__(self, limit: int, n_owners: int = 1) -> None:
        self.limit = limit
        self.n_owners = n_owners
        self.n_live = 0
        self._of_owner: Counter[int] = Counter()

    @contextmanager
    def entered(self, owner: int) -> Iterator[None]:
        """Counts a live request. Raises ApiError if the limit is reached, in total or for this owner."""
        self._check(owner)
        self.n_live += 1
        self._of_owner[owner] += 1
        try:
            yield
        finally:
            self.n_live -= 1
            self._of_owner[owner] -= 1
            if not self._of_owner[owner]:
                del self._of_owner[owner]

    def _check(self, owner: int) -> None:
        share = share_of(self.limit, self.n_owners)
        if self.n_live >= self.limit:
            raise ApiError("overloaded", f"The server has {self.limit} live requests, the limit. Try again later.")
        if self._of_owner[owner] >= share:
            raise ApiError(
                "overloaded",
                f"The server has {share} live requests of this owner, its share of {self.limit}. Try again later.",
            )
