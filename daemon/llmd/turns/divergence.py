"""Finds the point at which the prompt of a turn differs from its session, with the tokens around it. Pure.

The prompt's side is certain. The resident side is what the session's branches held when the request arrived, read from
the session table before the request was queued. Only the tokens around the first difference are kept. The resident side
is left out if the decode thread may have compared with other tokens: if the branch was busy at that time, if it was
opened or chosen in another way, or if the decode thread found another difference.
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
    """None: not certain."""


def best_match(matches: Iterable[BranchMatch]) -> BranchMatch | None:
    """Returns the match with the longest common prefix."""
    return max(matches, key=lambda match: match.at, default=None)


def match_of(resident: bytes, prompt: bytes) -> BranchMatch:
    at = n_common(resident, prompt)
    first = _TOKEN_BYTES * at
    return BranchMatch(at, resident[first : first + _TOKEN_BYTES * limits.DIVERGENCE_TOKENS_KEPT])


def n_common(a: bytes, b: bytes) -> int:
    """Returns the number of leading tokens that two histories have in common. It bisects, because slices are compared
    at the speed of memory.
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
    """Returns the tokens around the difference. `diverged_at` is the decode thread's; -1: the prompt continued the
    resident tokens.
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
