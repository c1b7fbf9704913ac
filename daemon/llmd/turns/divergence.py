"""Where the prompt of a turn leaves what its session held, with the tokens around that point. Pure.

The prompt's side is certain. The resident side is what the session's timelines held when the request came, read from
the shared page before the request was queued. Only the tokens around the first difference are kept. It is left out when
it is not certain to be what the decode thread compared with: when the timeline was busy then, when it was opened or
chosen otherwise, or when the difference the decode thread found is another one.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from ..core import limits

_TOKEN_BYTES = 4


@dataclass(frozen=True, slots=True)
class BranchMatch:
    """Where the prompt leaves what an idle timeline holds, and the resident tokens from there."""

    at: int
    resident: bytes


@dataclass(frozen=True, slots=True)
class DivergedTokens:
    at: int
    before: bytes
    """Tokens that both have."""
    prompt: bytes
    resident: bytes | None
    """None: not known for certain."""


def best_match(matches: Iterable[BranchMatch]) -> BranchMatch | None:
    """Returns the sight of the branch with the longest common prefix."""
    return max(matches, key=lambda match: match.at, default=None)


def match_of(resident: bytes, prompt: bytes) -> BranchMatch:
    at = n_common(resident, prompt)
    first = _TOKEN_BYTES * at
    return BranchMatch(at, resident[first : first + _TOKEN_BYTES * limits.DIVERGENCE_TOKENS_KEPT])


def n_common(a: bytes, b: bytes) -> int:
    """How many tokens two histories share from the start. Halving: slices compare at the speed of memory."""
    low, high = 0, min(len(a), len(b)) // _TOKEN_BYTES
    while low < high:
        middle = (low + high + 1) // 2
        if a[_TOKEN_BYTES * low : _TOKEN_BYTES * middle] == b[_TOKEN_BYTES * low : _TOKEN_BYTES * middle]:
            low = middle
        else:
            high = middle - 1
    return low


def divergence_of(prompt: bytes, diverged_at: int, match: BranchMatch | None) -> DivergedTokens | None:
    """`diverged_at` as the decode thread found it; -1: the prompt went on with what was resident."""
    if diverged_at < 0:
        return None
    kept, first = _TOKEN_BYTES * limits.DIVERGENCE_TOKENS_KEPT, _TOKEN_BYTES * diverged_at
    return DivergedTokens(
        at=diverged_at,
        before=prompt[max(first - kept, 0) : first],
        prompt=prompt[first : first + kept],
        resident=match.resident if match is not None and match.at == diverged_at else None,
    )
