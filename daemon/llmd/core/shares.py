"""Divides the daemon's limits between owners, by the same rule as libllm (share.h).

The event loop owns all objects of this module.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from .errors import ApiError


def share_of(limit: int, n_owners: int) -> int:
    """Returns how much of a limit one owner can use. For each other owner, half of `limit / n_owners` is reserved, but
    at least 1 for all of them together. With a limit of 100 and 2 owners, 25 are reserved, so each owner can use 75.
    """
    if n_owners <= 1 or limit <= 1:
        return max(limit, 1)
    return limit - max((n_owners - 1) * limit // (2 * n_owners), 1)


def pick_eviction_victim(held: Iterable[tuple[int, str]]) -> tuple[int, str]:
    """Returns the session to drop: the least recently used session of the owner with the most sessions. So an owner
    cannot push out the sessions of an owner who has fewer. `held` has the owners and names of all sessions, the least
    recently used first.
    """
    held = list(held)
    [(greediest, _)] = Counter(owner for owner, _ in held).most_common(1)
    return next(key for key in held if key[0] == greediest)


class Admission:
    """Counts live requests. A request is counted before its body is received, and until it has ended. `noun` is what
    error messages call the requests.
    """

    def __init__(self, limit: int, n_owners: int = 1, noun: str = "live requests") -> None:
        self.limit = limit
        self._noun = noun
        self.n_owners = n_owners
        self.n_live = 0
        self._of_owner: Counter[int] = Counter()

    @contextmanager
    def entered(self, owner: int) -> Iterator[None]:
        """Counts a live request while the `with` block runs. Raises ApiError if the limit is reached, in total or for
        this owner.
        """
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
            raise ApiError(
                "overloaded", f"The server has reached its limit of {self.limit} {self._noun}. Try again later."
            )
        if self._of_owner[owner] >= share:
            raise ApiError(
                "overloaded",
                f"Your share of the server's {self.limit} {self._noun} is {share}, and all of them are in use. "
                "Try again later.",
            )
