"""Between owners: what one may take of what all share. The rule is libllm's, for the daemon's own limits. Pure."""

from __future__ import annotations


def share_of(limit: int, n_owners: int) -> int:
    """The most one owner may hold: half of each other one's equal part stays free, and at least one in all."""
    if n_owners <= 1 or limit <= 1:
        return max(limit, 1)
    return limit - max((n_owners - 1) * (limit // (2 * n_owners)), 1)
