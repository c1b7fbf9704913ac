"""Words that are none of those that there are, and which was probably meant."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence


def nearest(word: str, words: Iterable[str]) -> str:
    """To stand behind what names the word; "" when none is near."""
    found = difflib.get_close_matches(word, list(words), 1)
    return f" (did you mean {found[0]}?)" if found else ""


def unrecognized(arguments: Sequence[str], flags: Iterable[str]) -> str:
    """About what the parser of a command line had no use for, beginning with the first."""
    if not arguments[0].startswith("-"):
        return f"unrecognized arguments: {' '.join(arguments)}"
    flag = arguments[0].partition("=")[0]
    return f"there is no option {flag}{nearest(flag, flags)}"
