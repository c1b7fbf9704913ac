"""Formats text as man(7), with the few macros that the pages need."""

from __future__ import annotations

import textwrap

# Characters that groff would replace by characters that cannot be pasted into a shell, or would take for a command of
# its own.
_ESCAPES = str.maketrans(
    {"\\": r"\(rs", "-": r"\-", "'": r"\(aq", "`": r"\(ga", "^": r"\(ha", "~": r"\(ti", '"': r"\(dq"}
)


def escaped(text: str) -> str:
    return text.translate(_ESCAPES)


def _line(text: str) -> str:
    """Returns a line of input that groff takes for text, even if the line begins with a dot."""
    return rf"\&{text}" if text.startswith(".") else text


def text(sentences: str) -> str:
    lines = textwrap.wrap(escaped(sentences), 78, break_long_words=False, break_on_hyphens=False)
    return "\n".join(map(_line, lines))


def header(name: str, chapter: int, date: str, version: str) -> str:
    title = f'.TH {escaped(name.upper())} {chapter} "{date}" "{escaped(version)}" "llmd"'
    return f"{title}\n.nh\n.ad l"  # many words are names of options, so no hyphenation and no justification


_APART = ".PP\n"


def section(title: str, *parts: str) -> str:
    return _titled(f'.SH "{escaped(title.upper())}"', *parts)


def subsection(title: str, *parts: str) -> str:
    return _titled(f'.SS "{escaped(title)}"', *parts)


def _titled(title: str, *parts: str) -> str:
    """Joins a title and the parts below it. The macro of a title adds space itself, so the space before the first part
    is removed.
    """
    return "\n".join((title, *parts)).replace(f"{title}\n{_APART}", f"{title}\n", 1)


def paragraph(sentences: str) -> str:
    return f"{_APART}{text(sentences)}"


def item(term: str, *sentences: str) -> str:
    """Returns an item of a list. The first word of the term, a flag or a verb, is bold. The other words are in italics,
    because the reader replaces them.
    """
    name, _, rest = term.partition(" ")
    shown = f"\\fB{escaped(name)}\\fR" + (f" \\fI{escaped(rest)}\\fR" if rest else "")
    return "\n".join((".TP", _line(shown), text(" ".join(sentences))))


def listed(rows: tuple[tuple[str, str], ...]) -> str:
    return "\n".join("\n".join((".TP", _line(rf"\fB{escaped(term)}\fR"), text(about))) for term, about in rows)


def literal(block: str) -> str:
    """Returns a block whose lines are shown unchanged."""
    lines = (_line(escaped(line)) for line in block.strip("\n").splitlines())
    return _APART + "\n".join((".nf", *lines, ".fi"))


def page(*parts: str) -> str:
    return "\n".join(parts) + "\n"
