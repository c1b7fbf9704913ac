"""Titled lists of a program's manual, which `--help` and the man page both show."""

from __future__ import annotations

import textwrap
from dataclasses import dataclass

WIDTH = 100
TERM_WIDTH_MAX = 44
"""A longer term has its sentence on the next line."""


@dataclass(frozen=True, slots=True)
class Section:
    title: str
    rows: tuple[tuple[str, str], ...]
    """Terms and their explanations."""


def shown(*sections: Section) -> str:
    """For a terminal: the epilog of --help."""
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
