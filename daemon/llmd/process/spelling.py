"""Suggestions for misspelled words."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping, Sequence


def nearest(word: str, words: Iterable[str]) -> str:
    """To stand behind what names the word; "" when none is near."""
    return _asked(*difflib.get_close_matches(word, list(words), 1))


def unrecognized(arguments: Sequence[str], flags: Iterable[str], meant: Mapping[str, str] | None = None) -> str:
    """About what the parser of a command line had no use for, beginning with the first. `meant`: which flags others
    stand for that are not near."""
    if not arguments[0].startswith("-"):
        return f"unrecognized arguments: {' '.join(arguments)}"
    flag = arguments[0].partition("=")[0]
    known = (meant or {}).get(flag)
    return f"there is no option {flag}{_asked(known) if known else nearest(flag, flags)}"


def _asked(*word: str) -> str:
    return f" (did you mean {word[0]}?)" if word else ""
