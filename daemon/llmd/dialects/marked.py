"""Joins texts of which clients mark some: after those the next prompts may differ. Pure."""

from __future__ import annotations

from collections.abc import Iterable

Piece = tuple[str, bool]
"""A text, and whether it is marked."""


def joined(pieces: Iterable[Piece], between: str) -> tuple[str, tuple[int, ...]]:
    """Returns the joined text, and the ends of the marked ones in it."""
    texts: list[str] = []
    marks: list[int] = []
    n_chars = 0
    for text, is_marked in pieces:
        n_chars += len(text) + (len(between) if texts else 0)
        texts.append(text)
        if is_marked:
            marks.append(n_chars)
    return between.join(texts), tuple(marks)
