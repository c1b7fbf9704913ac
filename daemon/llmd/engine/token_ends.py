"""Where the tokens of an answer end in its text. Owned by the event loop."""

from __future__ import annotations

from array import array
from bisect import bisect_left


class TokenEnds:
    """Characters of an answer up to the end of each of its tokens, in order."""

    __slots__ = ("_ends", "_n_chars")

    def __init__(self) -> None:
        self._ends = array("Q")
        self._n_chars = 0

    def came(self, text: str, ends: bytes) -> None:
        """`ends`: uint32, within `text`."""
        before = self._n_chars
        self._ends.extend([before + end for end in memoryview(ends).cast("I")])
        self._n_chars += len(text)

    def count(self, begin: int, end: int) -> int:
        """Tokens that wrote some of these characters; those that end within a character, or show nothing, go with what
        is behind them."""
        ends = self._ends
        first = bisect_left(ends, begin)
        if 0 < begin and first < len(ends) and ends[first] == begin:
            first += 1
        return max(min(bisect_left(ends, end) + 1, len(ends)) - first, 0) if end > begin else 0
