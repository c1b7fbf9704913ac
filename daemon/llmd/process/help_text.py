"""Texts for `--help` and man pages: lists of terms with explanations, and suggestions for unknown options."""

from __future__ import annotations

import difflib
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

WIDTH = 100
TERM_WIDTH_MAX = 44
"""Maximum width of the column of terms, in characters. If a term is wider, its explanation begins on the next line."""


@dataclass(frozen=True, slots=True)
class Section:
    title: str
    rows: tuple[tuple[str, str], ...]
    """Pairs of a term and its explanation."""


def format_sections(*sections: Section) -> str:
    """Formats the sections as text for a terminal. The text is printed at the end of --help."""
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


# --- unknown options --------------------------------------------------------------------------------------------------


def nearest(word: str, words: Iterable[str]) -> str:
    """Returns the text " (did you mean ...?)" with the known word that is most similar to `word`. The caller appends
    this text to an error. Returns "" if no known word is similar.
    """
    return _suggestion(*difflib.get_close_matches(word, list(words), 1))


def unrecognized(arguments: Sequence[str], flags: Iterable[str], synonyms: Mapping[str, str] | None = None) -> str:
    """Returns the error message for command-line arguments that the parser did not recognize. If the first of these
    arguments is a flag, the message is about this flag only. `synonyms` maps flags of other programs to llmd's flags.
    For such a flag, the message suggests llmd's flag.
    """
    if not arguments[0].startswith("-"):
        return f"unrecognized arguments: {' '.join(arguments)}"
    flag = arguments[0].partition("=")[0]
    known = (synonyms or {}).get(flag)
    return f"there is no option {flag}{_suggestion(known) if known else nearest(flag, flags)}"


def _suggestion(*word: str) -> str:
    return f" (did you mean {word[0]}?)" if word else ""
