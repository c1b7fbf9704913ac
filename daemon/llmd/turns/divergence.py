"""Finds the point at which the prompt of a turn diverges from its session, and the tokens around that point. Pure.

The tokens of the prompt are certain. The resident tokens are those of the session's branches when the request arrived,
read from the session table before the request was queued. Only the tokens around the first difference are kept. The
resident tokens are left out if the decode thread may have compared the prompt with other tokens: if the branch was busy
when the request arrived, if another branch was chosen or opened, or if the decode thread found another first
difference.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from ..core import limits

_TOKEN_BYTES = 4


@dataclass(frozen=True, slots=True)
class BranchMatch:
    """The number of tokens that the prompt shares with an idle branch, and the resident tokens after them."""

    at: int
    resident: bytes


@dataclass(frozen=True, slots=True)
class DivergedTokens:
    at: int
    before: bytes
    """Tokens before the difference, which both sides have."""
    prompt: bytes
    resident: bytes | None
    """None if the resident tokens are not certain."""


def best_match(matches: Iterable[BranchMatch]) -> BranchMatch | None:
    """Returns the match with the longest common prefix."""
    return max(matches, key=lambda match: match.at, default=None)


def match_of(resident: bytes, prompt: bytes) -> BranchMatch:
    at = n_common(resident, prompt)
    first = _TOKEN_BYTES * at
    return BranchMatch(at, resident[first : first + _TOKEN_BYTES * limits.DIVERGENCE_TOKENS_KEPT])


def n_common(a: bytes, b: bytes) -> int:
    """Returns the number of leading tokens that two histories have in common. Bisects, because Python compares slices
    as fast as memory can be read.
    """
    low, high = 0, min(len(a), len(b)) // _TOKEN_BYTES
    while low < high:
        middle = (low + high + 1) // 2
        if a[_TOKEN_BYTES * low : _TOKEN_BYTES * middle] == b[_TOKEN_BYTES * low : _TOKEN_BYTES * middle]:
            low = middle
        else:
            high = middle - 1
    return low


def divergence_of(prompt: bytes, diverged_at: int, match: BranchMatch | None) -> DivergedTokens | None:
    """Returns the tokens around the first difference, or None if the prompt continued the resident tokens.
    `diverged_at` is the decode thread's index of the first different token, or -1 if there was none.
    """
    if diverged_at < 0:
        return None
    kept, first = _TOKEN_BYTES * limits.DIVERGENCE_TOKENS_KEPT, _TOKEN_BYTES * diverged_at
    return DivergedTokens(
        at=diverged_at,
        before=prompt[max(first - kept, 0) : first],
        prompt=prompt[first : first + kept],
        resident=match.resident if match is not None and match.at == diverged_at else None,
    )
