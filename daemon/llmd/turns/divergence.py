"""Finds the first token at which the prompt of a turn differs from the tokens of the turn's session. Also finds the
tokens around this point. All functions are pure.

The tokens of the session's branches are read from the session table when the request arrives, before the request is
queued. Only the tokens around the first difference are kept. The decode thread makes its own comparison later, when the
request starts. By then, the branch may have other tokens. In three cases, the report has no tokens of the branch:
- The branch was busy when the request arrived, so its tokens were not read.
- The decode thread chose or opened a branch whose tokens were not read.
- The decode thread reports the first difference at another token.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from ..core import limits

TOKEN_BYTES = 4


@dataclass(frozen=True, slots=True)
class BranchMatch:
    """How far a prompt matches an idle branch. `at` is the number of equal tokens at the beginning. `resident` are the
    tokens of the branch that follow them.
    """

    at: int
    resident: bytes


@dataclass(frozen=True, slots=True)
class DivergedTokens:
    at: int
    before: bytes
    """The tokens just before the difference. Prompt and branch have them in common."""
    prompt: bytes
    """The prompt's tokens from the difference on."""
    resident: bytes | None
    """The branch's tokens from the difference on. None if they are not certain."""


def best_match(matches: Iterable[BranchMatch]) -> BranchMatch | None:
    """Returns the match with the longest common prefix."""
    return max(matches, key=lambda match: match.at, default=None)


def match_of(resident: bytes, prompt: bytes) -> BranchMatch:
    at = n_common(resident, prompt)
    first = TOKEN_BYTES * at
    return BranchMatch(at, resident[first : first + TOKEN_BYTES * limits.DIVERGENCE_TOKENS_KEPT])


def n_common(a: bytes, b: bytes) -> int:
    """Returns how many tokens at the beginning of two token arrays are equal. Finds this number by bisection: Python
    compares two slices as fast as memory can be read. A loop over the tokens would be slower.
    """
    low, high = 0, min(len(a), len(b)) // TOKEN_BYTES
    while low < high:
        middle = (low + high + 1) // 2
        if a[TOKEN_BYTES * low : TOKEN_BYTES * middle] == b[TOKEN_BYTES * low : TOKEN_BYTES * middle]:
            low = middle
        else:
            high = middle - 1
    return low


def divergence_of(prompt: bytes, diverged_at: int, match: BranchMatch | None) -> DivergedTokens | None:
    """Returns the tokens around the first difference, or None if the prompt continued the branch. `diverged_at` is the
    index of the first different token, as reported by the decode thread. `diverged_at` is -1 if there was no
    difference.
    """
    if diverged_at < 0:
        return None
    kept, first = TOKEN_BYTES * limits.DIVERGENCE_TOKENS_KEPT, TOKEN_BYTES * diverged_at
    return DivergedTokens(
        at=diverged_at,
        before=prompt[max(first - kept, 0) : first],
        prompt=prompt[first : first + kept],
        resident=match.resident if match is not None and match.at == diverged_at else None,
    )
