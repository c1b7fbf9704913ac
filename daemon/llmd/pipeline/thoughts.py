"""How many tokens of an answer its thoughts are: where they are in its text is looked up there. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from ..engine.token_ends import TokenEnds


def count_thoughts(answer: str, thoughts: Sequence[Sequence[str]], ends: TokenEnds) -> int:
    """`thoughts`: those without anything between them that was told, each in the pieces in which it came."""
    n_tokens = at = 0
    for pieces in thoughts:
        whole = "".join(pieces)
        # Only what a parser has left out between its pieces makes a thought that is not there as a whole.
        for text in [whole] if answer.find(whole, at) >= 0 else pieces:
            begin = answer.find(text, at)
            if begin >= 0:
                at = begin + len(text)
                n_tokens += ends.count(begin, at)
    return n_tokens
