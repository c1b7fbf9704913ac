"""The titled lists in a program's manual, for `--help` and the man page."""

from __future__ import annotations

import difflib
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

WIDTH = 100
TERM_WIDTH_MAX = 44
"""Maximum width of the column of terms. The explanation of a longer term begins on the next line."""


@dataclass(frozen=True, slots=True)
class Section:
    title: str
    rows: tuple[tuple[str, str], ...]
    """The terms, each with its explanation."""


def format_sections(*sections: Section) -> str:
    """Returns the sections as text for a terminal, for the epilog of --help."""
    return "\n".join(f"{section.title}:\n{_listed(section.rows)}" for section in sections)


def _listed(rows: tuple[tuple[str, str], ...]) -> str:
    width = max((len(term) for term, _ in rows if len(term) <= TERM_WIDTH_MAX), default=0)
    lines = []
    for term, sentence in rows:
        indent = " " * (width + 4)
        wrapped = textwrap.wrap(sentence, WIDTH, initial_indent=indent, subsequent_indent=indent)
        if len(term) <= width:
            wrapped[0] = f"  {term.ljust(width)}{wrapped[0][width + 2 :]}"
        else:
            lines.append(f"  {term}")
        lines += wrapped
    return "".join(f"{line}\n" for line in lines)


# --- suggestions ------------------------------------------------------------------------------------------------------


def nearest(word: str, words: Iterable[str]) -> str:
    """Returns a suggestion to append to an error about an unknown word, or "" if none of `words` is similar."""
    return _suggestion(*difflib.get_close_matches(word, list(words), 1))


def unrecognized(arguments: Sequence[str], flags: Iterable[str], synonyms: Mapping[str, str] | None = None) -> str:
    """Returns the error for arguments that the parser did not recognize. If the first argument is a flag, the error is
    about this flag only. `synonyms` maps flags of other programs to llmd's flags.
    """
    if not arguments[0].startswith("-"):
        return f"unrecognized arguments: {' '.join(arguments)}"
    flag = arguments[0].partition("=")[0]
    known = (synonyms or {}).get(flag)
    return f"there is no option {flag}{_suggestion(known) if known else nearest(flag, flags)}"


def _suggestion(*word: str) -> str:
    return f" (did you mean {word[0]}?)" if word else ""
