"""How much of something bounded one owner may hold while others hold some of it. Pure."""

from __future__ import annotations


def share_of(limit: int, n_owners: int) -> int:
    """Of `limit`, for each of `n_owners` who hold some or ask for it.

    One alone may have all; the more there are, the closer to half of it. What the others leave is there for whoever
    comes, so that nobody who comes finds everything taken for good.
    """
    n = max(n_owners, 1)
    return limit - (n - 1) * limit // (2 * n)
